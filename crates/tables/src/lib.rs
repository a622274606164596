//! Lookup structures shared by control and workers.

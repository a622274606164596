//! Traffic, verification, reports.

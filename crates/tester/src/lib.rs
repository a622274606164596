//! Traffic, verification, reports.

#![forbid(unsafe_code)]

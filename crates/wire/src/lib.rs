//! Header views and builders, checksums.

#![forbid(unsafe_code)]

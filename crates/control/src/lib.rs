//! Configuration, show models, HTTP API.

#![forbid(unsafe_code)]

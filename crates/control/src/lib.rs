//! Configuration, show models, HTTP API.

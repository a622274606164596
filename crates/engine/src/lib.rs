//! Workers, queues, graphs, publication, lifecycle.

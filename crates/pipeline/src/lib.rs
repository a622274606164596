//! Packets, batches, nodes, the graph, drop reasons, counters.

"""The protocol of replication: pure, without clock and network."""

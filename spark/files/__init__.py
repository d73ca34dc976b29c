"""Store directories: segments, ConsumeQueues, leases."""

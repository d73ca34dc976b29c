"""Store directories as Spark finds them: segments, ConsumeQueues, leases."""

"""ConsumeQueues: reads and writes by queue offset."""

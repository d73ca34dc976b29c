"""ConsumeQueues, and reads of messages by queue offset."""

"""Recognition of messages that the broker already has, for idempotent producers.  Not in RocketMQ."""

"""Timer wheel: messages by the second in which they are due, in RocketMQ's files."""

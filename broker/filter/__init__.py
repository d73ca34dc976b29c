"""SQL92 filters: an expression over the properties of a message, as RocketMQ has it."""

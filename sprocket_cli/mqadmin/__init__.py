"""`mqadmin`: RocketMQ's admin command."""

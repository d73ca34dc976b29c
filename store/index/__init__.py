"""Messages by key: RocketMQ's IndexFiles, what builds them by following the log, and queries over them."""

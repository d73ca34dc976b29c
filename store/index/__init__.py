"""Messages by key: RocketMQ's IndexFiles, the builder that follows the log, and queries."""

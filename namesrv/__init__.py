"""The name server: a cache of what brokers report.  Nothing is on disk but the KV configuration."""

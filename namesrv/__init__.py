"""Name server: a cache of what brokers report.  Only the KV configuration is on the disk."""

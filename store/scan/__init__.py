"""Scans over many records of the log: batches of records as columns, and the reason why a scan stopped."""

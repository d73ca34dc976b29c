"""Scans over many records of the log: one walk, columns in arrays, and the reason why a scan stopped."""

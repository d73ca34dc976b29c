"""Backups of a store: consistent prefixes of its log with its tables, copied from a store that may be in use."""

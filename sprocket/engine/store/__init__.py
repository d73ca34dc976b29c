"""Compiled store: the layout of records, their checks, the scan over a log, and the records of reads."""

"""Decoding of records to Arrow columns."""

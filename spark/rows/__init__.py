"""Rows for Spark: chunks, filters, record batches."""

"""Rows as Spark takes them: chunks, filters, record batches."""

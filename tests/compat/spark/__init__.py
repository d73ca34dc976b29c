"""Spark's tables and wire formats beside the programs that define them."""

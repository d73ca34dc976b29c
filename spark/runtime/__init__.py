"""Java and Python for Spark's processes."""

"""Bodies of messages as columns, by declared type."""

"""Records to Arrow columns."""

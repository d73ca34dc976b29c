"""Topics whose messages have one type."""

"""Writer of rows as messages."""

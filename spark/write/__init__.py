"""Writing rows as messages."""

"""Parts of the consumers that pull."""

"""Parts of the consumer of lite topics."""

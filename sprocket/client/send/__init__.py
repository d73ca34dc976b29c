"""Parts of the producer."""

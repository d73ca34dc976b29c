"""Parts of the consumer that pops."""

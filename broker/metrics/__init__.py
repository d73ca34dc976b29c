"""Statistics of a running broker."""

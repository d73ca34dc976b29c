"""Settings of the store by subject."""

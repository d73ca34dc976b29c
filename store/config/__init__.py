"""Settings of the store, one module per subject."""

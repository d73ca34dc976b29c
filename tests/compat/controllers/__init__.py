"""Controllers and brokers of both kinds."""

"""Request handlers: one class per group of request codes, each with its routes."""

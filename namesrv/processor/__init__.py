"""Request handlers, one file per kind of request; each class returns its routes."""

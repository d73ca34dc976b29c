"""Handlers of a controller's requests."""

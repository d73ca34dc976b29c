"""Handlers of the requests about lite topics."""

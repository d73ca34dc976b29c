"""Metrics of a server: what its parts declare, and how they are exported."""

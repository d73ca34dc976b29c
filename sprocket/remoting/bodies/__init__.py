"""Typed bodies: the JSON documents that travel in frames, one struct per document."""

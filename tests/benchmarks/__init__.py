"""The benchmark's own parts: what it counts must be what is there."""

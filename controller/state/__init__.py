"""Replicated state of the controllers: pure and deterministic, the same commands give the same bytes."""

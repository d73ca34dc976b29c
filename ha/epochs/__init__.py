"""Epochs of a replicated log: which master wrote which part of it, as controllers numbered the masters."""

"""Flushes: group commit, the checkpoint, and the confirm offset."""

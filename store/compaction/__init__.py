"""Compacted queues: of each key only the last message is kept."""

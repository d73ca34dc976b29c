"""Transactional messages: half messages, what ends them, and asking producers about those that nobody ended."""

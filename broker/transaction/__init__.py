"""Transactional messages: half messages, their end, and the checks of those that nobody ended."""

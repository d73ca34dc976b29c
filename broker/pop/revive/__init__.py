"""Redelivery of messages that were popped and not acknowledged in time."""

"""Redelivery of popped messages that were not acknowledged in time."""

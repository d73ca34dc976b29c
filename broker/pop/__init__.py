"""Pop: the broker delivers single messages, and redelivers those that are not acknowledged in time."""

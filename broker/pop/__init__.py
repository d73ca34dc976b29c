"""Pop: the broker hands messages out one by one, and again when they are not acknowledged in time."""

"""Messages for an arbitrary time: the wheel seen from the broker."""

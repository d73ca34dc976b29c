"""Messages with a delivery time: delay levels, and the timer wheel as a service of the broker."""

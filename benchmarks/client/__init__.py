"""CPU of our client for each message."""

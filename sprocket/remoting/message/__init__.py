"""The encoded forms of messages that travel in frames and lie in the log."""

"""The encoded forms of messages in frames and in the log."""

"""The broker: where the protocol meets the store."""

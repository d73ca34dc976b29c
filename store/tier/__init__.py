"""Tiered storage: closed parts of the log on an object store, and the manifest that says what is there."""

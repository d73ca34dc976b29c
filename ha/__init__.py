"""Replication: moves the bytes of a store.  Empty until the two-message protocol lands."""

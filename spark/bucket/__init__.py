"""Reads of archives in object stores (`store.tier`), without a broker and without its disk."""

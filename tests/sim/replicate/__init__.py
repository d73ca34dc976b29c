"""Replication over simulated clusters: the real copier, in turns of one event loop that a seed orders."""

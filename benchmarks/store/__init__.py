"""Benchmarks of the store: appends, recovery, opening, the index."""

"""Lite topics over simulated failover: the real broker with its pops, and clients that come and go."""

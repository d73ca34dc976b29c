"""Pulls: the compiled path of the usual ones.  `broker.processor.pull` has all others."""

"""Calls of a broker to name servers."""

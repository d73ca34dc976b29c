"""Requests of pages to name servers and brokers."""

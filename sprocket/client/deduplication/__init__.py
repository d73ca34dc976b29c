"""Deduplication: handle a message once although it is delivered twice."""

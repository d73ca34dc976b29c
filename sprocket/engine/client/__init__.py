"""Compiled parts of our client: the requests of its sends, and the records that it pulls."""

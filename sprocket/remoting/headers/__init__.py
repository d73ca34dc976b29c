"""Typed headers: the extFields of a command, one struct per request or response."""

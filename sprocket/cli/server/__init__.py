"""Commands that run servers."""

"""Tests of proxy.server."""

"""Tests of proxy.wire."""

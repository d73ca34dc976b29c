"""Tests of proxy.handles."""

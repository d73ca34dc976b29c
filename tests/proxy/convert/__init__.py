"""Tests of proxy.convert."""

"""Tests of proxy.workers."""

"""Tests of replication."""

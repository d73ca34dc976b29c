"""Tests of proxy.activity."""

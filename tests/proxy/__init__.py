"""Tests of the proxy, in the order of its packages."""

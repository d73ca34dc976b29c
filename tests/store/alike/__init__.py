"""Tests of records as columns of arrays."""

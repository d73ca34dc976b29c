"""Tests of broker.lite."""

"""Samples of brokers for charts of the last hour."""

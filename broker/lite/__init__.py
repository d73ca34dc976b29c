"""Lite topics (RIP-83): subscriptions, events, order and idle time of light queues under a parent topic."""

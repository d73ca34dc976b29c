"""Clients of many languages and versions at once, while brokers and name servers come and go."""

"""Logs of servers: settings, levels of components, rolled files, JSON lines."""

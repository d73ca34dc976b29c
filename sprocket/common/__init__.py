"""Modules that every layer may use: clock, errors, limits, configuration, files, logging, and the event loop."""

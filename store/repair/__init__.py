"""Repair of a stopped store: a plan, a journal, and undo."""

"""Moves of static topics in virtual time: the real plans and rules over brokers that are lists in memory."""

"""Namespaces of a broker: what an operator has set for each of them, and what that allows.  Not in RocketMQ."""

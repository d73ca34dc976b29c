"""Queues of topics move, and topics grow, while brokers and the tool are killed."""

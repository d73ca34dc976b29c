"""Pulls of a consumer: requests, decoded records, and the queues of messages that wait for the application."""

"""Filters of messages: SQL92 expressions over properties, as in RocketMQ, and tags."""

"""Configuration of servers: RocketMQ's keys as classes, the files that hold them, and updates while a server runs."""

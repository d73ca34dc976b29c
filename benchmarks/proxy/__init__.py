"""Benchmarks of the proxy beside RocketMQ's, and beside what gRPC's server for Python can do at best."""

"""Benchmarks of replication: a master and a slave of ours, beside Apache RocketMQ's and a plain copy."""

"""Stock Java clients and RocketMQ's own admin tool against a running cluster."""

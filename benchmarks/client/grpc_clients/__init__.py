"""Our client over gRPC beside RocketMQ's client for Python, both at one proxy."""

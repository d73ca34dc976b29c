"""The gRPC port: calls, limits, listeners, TLS."""

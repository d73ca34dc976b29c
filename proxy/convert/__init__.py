"""Messages and settings, between gRPC and remoting: pure."""

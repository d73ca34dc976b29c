"""Access to the proxy: signatures of gRPC calls, and what their users may do."""

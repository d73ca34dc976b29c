"""gRPC clients and proxies of both kinds."""

"""Access control and TLS with stock clients and mqadmin."""

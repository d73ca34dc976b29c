"""Receipt handles that the proxy renews while a client works on the messages."""

"""The remoting port of the proxy."""

"""The error for everything that gRPC has no method for."""

from sprocket.client.errors import IllegalArgument


def not_over_grpc(what: str, instead: str) -> IllegalArgument:
    """Return the error that says that `what` does not exist over gRPC, and what to do instead."""
    return IllegalArgument(f"grpc:// has no {what}; {instead}")


def needs_name_server(what: str) -> IllegalArgument:
    """Return the error for what only the remoting protocol has."""
    return not_over_grpc(what, "connect to the name server: sprocket.connect('host:9876')")

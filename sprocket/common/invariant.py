"""Checks of conditions that our own code guarantees."""

from sprocket.common.errors import InvariantError


def invariant(holds: bool, message: str) -> None:
    """Raise `InvariantError` with `message` unless `holds`.  Unlike `assert`, never compiled away."""
    if not holds:
        raise InvariantError(message)

"""Number of the present state of something that a gate's decisions depend on."""


class Revision:
    """Number that rises with each change.  Compiled code reads it without a call."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def rise(self) -> None:
        """End all passes that depend on it: something has changed."""
        self.number += 1

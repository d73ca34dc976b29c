"""Number of the present state of something, for those who keep what they made of it."""


class Revision:
    """Number that rises with each change.  A number, because a comparison needs no call, in compiled code too."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def rise(self) -> None:
        """End all that was made of the state before: something has changed."""
        self.number += 1

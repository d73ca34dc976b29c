"""Version of everything that plans are made from.  A file of its own, because the tables of a broker import it."""


class PlanVersion:
    """Number that rises with each change of something that a plan depends on.

    These are topics, groups and what they are forbidden, consumers and their subscriptions, filters, the configuration,
    the removal of queues, resets of offsets, and the broker's role.  Whoever changes one of them calls `rise`, before
    another request can be served.
    """

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def rise(self) -> None:
        """Drop all plans: something has changed."""
        self.number += 1

"""Version of everything that plans are made from.  A file of its own, because the tables of a broker import it."""


class PlanVersion:
    """Number that rises with each change of something that a plan depends on.

    These are topics, groups and their forbidden topics, consumers and their subscriptions, filters, the configuration,
    the removal of queues, and resets of offsets.  Code that changes one of them calls `rise` before the next request
    is served.  Another role of the broker needs no call, because it begins with new tables of plans.
    """

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def rise(self) -> None:
        """Drop all plans: something has changed."""
        self.number += 1

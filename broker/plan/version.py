"""Version of everything that plans are made from.  A file of its own, because the tables of a broker import it."""

from sprocket.common.revision import Revision


class PlanVersion(Revision):
    """Number that rises with each change of something that a plan depends on; all plans of before are dropped.

    These are topics, groups and their forbidden topics, consumers and their subscriptions, filters, the configuration,
    the removal of queues, and resets of offsets.  Code that changes one of them calls `rise` before the next request
    is served.  Another role of the broker needs no call, because it begins with new tables of plans.
    """

    __slots__ = ()

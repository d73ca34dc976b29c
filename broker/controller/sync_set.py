"""The sync-state set of one master: what controllers decided, what they are asked, and who counts meanwhile.

A slave is added as soon as it is in sync, and taken out when the master looks and it is not in sync any more.  Pure.

Controllers may elect any member of the set, and ask n - k + 1 of its n members for their logs, see decision 043.  So
each acknowledged message is on k members of the set, or on all of them if they are fewer.  A change keeps that up.
While its answer is not known, only the members of both sets count, and a message for the whole set must be on all
members of either.  The change is not sent before as many members of the new set have what may be acknowledged by then.
Source: RocketMQ 5.3.3, `ReplicasManager.checkSyncStateSetAndDoReport`; the rules for open changes are Sprocket's own.
"""

from typing import NamedTuple

Ids = frozenset[int]


class Counting(NamedTuple):
    """Slaves that count for acknowledgements, and slaves that controllers may elect, without the master."""

    counts: Ids
    may_lead: Ids


class SyncSet:
    """Set of the master `own_id` in one epoch."""

    def __init__(self, own_id: int, decided: Ids, epoch: int) -> None:
        self._own_id = own_id
        self._decided = decided | {own_id}
        self._epoch = epoch
        # Sets that controllers were asked for since the last decision.  One of them may be decided.
        self._open: list[Ids] = []

    @property
    def decided(self) -> Ids:
        """Set that controllers decided last, as far as this master knows."""
        return self._decided

    @property
    def epoch(self) -> int:
        """Epoch of the decided set."""
        return self._epoch

    @property
    def counting(self) -> Counting:
        """Who counts now."""
        own = {self._own_id}
        both, either = self._decided.intersection(*self._open), self._decided.union(*self._open)
        return Counting(both - own, either - own)

    def wanted(self, in_sync: Ids, *, may_shrink: bool) -> Ids | None:
        """Return the set to ask for, given the slaves in sync; None if nothing is to be changed.

        An open change is asked for again, because it may not have reached the controllers.
        """
        target = in_sync | {self._own_id}
        if not may_shrink:
            target |= self._decided
        if target != self._decided:
            return target
        return self._open[-1] if self._open else None

    def is_asked(self, wanted: Ids) -> bool:
        """Return whether controllers were asked for this set, and may still decide it."""
        return wanted in self._open

    def ask(self, wanted: Ids) -> Counting:
        """Begin a change.  Return who counts from now on."""
        if wanted not in self._open:
            self._open.append(wanted)
        return self.counting

    def withdraw(self, wanted: Ids) -> None:
        """Forget a change that certainly did not happen and will not."""
        if wanted in self._open:
            self._open.remove(wanted)

    def learn(self, decided: Ids, epoch: int) -> bool:
        """Take over what controllers decided.  Return whether that is new.

        RocketMQ's controllers forget a member (cleanBrokerMetadata) without another epoch.
        """
        decided |= {self._own_id}
        if epoch == self._epoch and decided < self._decided:
            self._decided, self._open = decided, [one for one in self._open if one != decided]
            return True
        if epoch <= self._epoch:
            return False
        self._decided, self._epoch, self._open = decided, epoch, []
        return True


def copies_needed(members: Ids, required_acks: int) -> int:
    """Return on how many `members` (with the master) a message must be before the set counts; 0: on all of them."""
    return min(required_acks, len(members)) if required_acks else len(members)

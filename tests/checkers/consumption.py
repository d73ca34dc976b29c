"""What must hold of what consumers were given, whatever was stopped, killed, joined or left meanwhile.

Each check is a pure function of a history; it names the messages that break the rule.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.checkers.history import Got, History, Place

Wanted = Callable[[str], bool]
# A clock is read before a request leaves and after it has come; both may be rounded to milliseconds by a client.
_ROUNDING_US = 2_000


@dataclass(frozen=True)
class Disturbance:
    """Event after which messages may be redelivered: a broker was away, or a consumer joined or left."""

    name: str
    began_us: int
    ended_us: int
    broker: str | None = None


def everything(key: str) -> bool:
    return True


def lost(history: History, wanted: Wanted = everything, consumers: Sequence[str] | None = None) -> list[str]:
    """Return the acknowledged messages that no consumer got; each of `consumers`, if named, must have all."""
    keys = [sent.key for sent in history.acknowledged if wanted(sent.key)]
    problems = []
    whom: Sequence[str | None] = consumers or [None]
    for consumer in whom:
        given = {got.key for got in history.got if consumer is None or got.consumer == consumer}
        to_whom = "" if consumer is None else f" to {consumer}"
        problems += [f"{key} was acknowledged and never given{to_whom}" for key in keys if key not in given]
    return problems


def strangers(history: History, wanted: Wanted = everything) -> list[str]:
    """What consumers were given though nobody sent it, or though it was not for them."""
    sent = {each.key for each in history.sent}
    given = dict.fromkeys(got.key for got in history.got)
    return [f"{key} was given and never sent" for key in given if key not in sent] + [
        f"{key} was given and should not have been" for key in given if key in sent and not wanted(key)
    ]


def displaced(history: History, *, is_stored_once: bool = True) -> list[str]:
    """Messages that stand at another place than the one that was acknowledged, or at two; places with two messages.

    Not `is_stored_once`: the broker may write a message twice when it is killed, as that of a delay that has passed.
    """
    problems = []
    acknowledged = {sent.key: sent.place for sent in history.sent}
    places: dict[str, set[Place]] = defaultdict(set)
    keys: dict[Place, set[str]] = defaultdict(set)
    for got in history.got:
        if not got.topic.startswith("%"):
            places[got.key].add(got.place)
            keys[got.place].add(got.key)
    for key, seen in places.items():
        place = acknowledged.get(key)
        if place is not None and seen != {place}:
            problems.append(f"{key}, acknowledged at {tuple(place)}, was given from {_places(seen)}")
        elif len(seen) > 1 and is_stored_once:
            problems.append(f"{key} was given from {_places(seen)}")
    problems += [f"{tuple(place)} was given as {sorted(here)}" for place, here in keys.items() if len(here) > 1]
    given_twice = Counter(sent.place for sent in history.sent if sent.place is not None)
    return problems + [f"{tuple(place)} was acknowledged {n} times" for place, n in given_twice.items() if n > 1]


def _places(places: Iterable[Place]) -> list[tuple[str, int, int]]:
    return sorted((place.broker, place.queue_id, place.offset) for place in places)


def doubles(history: History) -> dict[tuple[str, str], list[Got]]:
    """(consumer group's topic, key) -> the deliveries of what came more than once in the same attempt."""
    seen: dict[tuple[str, str], list[Got]] = defaultdict(list)
    for got in sorted(history.got, key=lambda got: got.began_us):
        seen[got.topic, f"{got.key} x{got.times}"].append(got)
    return {where: deliveries for where, deliveries in seen.items() if len(deliveries) > 1}


def unexplained_doubles(
    history: History, disturbances: Sequence[Disturbance], memory_us: int, settling_us: int
) -> list[str]:
    """Messages given again though nothing happened, or though their offset should have been kept long before.

    `memory_us`: how long a consumed message may not yet be in the offset that a broker has on disk.
    `settling_us`: how long after a disturbance queues may still move from one consumer to another.
    """
    problems = []
    for (_, key), deliveries in doubles(history).items():
        for first, again in pairwise(deliveries):
            if not any(
                each.began_us <= again.began_us <= each.ended_us + settling_us
                and first.ended_us >= each.began_us - memory_us
                for each in disturbances
            ):
                problems.append(f"{key} of {tuple(first.place)} was given at {first.began_us} and {again.began_us}")
    return problems


def disordered(history: History) -> list[str]:
    """Return the messages of a queue that were skipped: the next owner starts where the last one was, or earlier."""
    problems = []
    for (broker, queue_id), deliveries in history.by_queue().items():
        due = 0
        for got in deliveries:
            if got.place.offset > due:
                problems.append(f"{broker} queue {queue_id}: {got.key} at {got.place.offset} was given before {due}")
            due = max(due, got.place.offset + 1)
    return problems


def disordered_shards(history: History, shard: Callable[[str], int]) -> list[str]:
    """Messages of a shard that were first given after a later one."""
    last: dict[int, str] = {}
    problems = []
    seen = set()
    for got in sorted(history.got, key=lambda got: (got.began_us, got.place.offset)):
        if got.key in seen:
            continue
        seen.add(got.key)
        before = last.get(shard(got.key))
        if before is not None and before > got.key:
            problems.append(f"{got.key} was first given after {before}")
        last[shard(got.key)] = got.key
    return problems


def overlaps(history: History, disturbances: Sequence[Disturbance] = (), validity_us: int = 0) -> list[str]:
    """Messages of one queue that two consumers, or two threads of one, had at the same time.

    Locks are in a broker's memory, as in RocketMQ: for `validity_us` after its restart a member may go on with a queue
    that another has locked meanwhile.
    """

    def is_restarted(broker: str, at_us: int) -> bool:
        return any(
            each.broker == broker and each.began_us <= at_us <= each.ended_us + validity_us for each in disturbances
        )

    problems = []
    for (broker, queue_id), deliveries in history.by_queue().items():
        for one, other in pairwise(deliveries):
            is_same = (one.consumer, one.began_us) == (other.consumer, other.began_us)
            if other.began_us < one.ended_us and not is_same and not is_restarted(broker, other.began_us):
                problems.append(
                    f"{broker} queue {queue_id}: {other.consumer} began {other.key} "
                    f"{one.ended_us - other.began_us} us before {one.consumer} was through with {one.key}"
                )
    return problems


def early(history: History, delay_us: Callable[[str], int]) -> list[str]:
    """Messages that came before their time."""
    due = {sent.key: sent.began_us + delay_us(sent.key) - _ROUNDING_US for sent in history.sent}
    return [
        f"{got.key} came {due[got.key] - got.began_us} us early"
        for got in history.got
        if got.key in due and got.began_us < due[got.key]
    ]


def late(history: History, delay_us: Callable[[str], int], limit_us: int) -> list[str]:
    """Messages that first came longer than `limit_us` after they were due."""
    first: dict[str, int] = {}
    for got in history.got:
        first.setdefault(got.key, got.began_us)
    return [
        f"{sent.key} came {first[sent.key] - sent.ended_us - delay_us(sent.key)} us after it was due"
        for sent in history.acknowledged
        if sent.key in first and first[sent.key] > sent.ended_us + delay_us(sent.key) + limit_us
    ]

"""Each kind of message and way of consuming, and what must hold of it in a storm.

What a message is like follows from the number at the end of its key; the programs that send know the same rules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.checkers.consumption import (
    Disturbance,
    Wanted,
    disordered,
    disordered_shards,
    displaced,
    early,
    everything,
    late,
    lost,
    overlaps,
    strangers,
    unexplained_doubles,
)
from tests.checkers.history import History

FIRST, SECOND, DEAD_LETTERS = "first", "second", "dead-letters"
SHARDS = 16
_S = 1_000_000
# What a kind has to have done for a run to show anything.
_LEAST = 80
# How long a stock client takes its lock of a queue for valid, and a little.
_LOCK_VALIDITY_US = 32 * _S
# A request that is given so late has waited for its consumer; its answer takes milliseconds.
_LONG_US = 10 * _S
# A stock client may forget a pull that it sent over a connection that just broke: it asks for the queue again when that
# pull has timed out after 30 s (`CONSUMER_TIMEOUT_MILLIS_WHEN_SUSPEND`) and 3 s more have passed. A machine is slow.
_FORGOTTEN_PULL_US = 40 * _S


@dataclass(frozen=True)
class Storm:
    """What happened around the histories of one run."""

    disturbances: Sequence[Disturbance]
    # How long a consumed message may be missing in the offsets on a broker's disk, and queues move after a change.
    memory_us: int
    settling_us: int
    # Until brokers know a client again after they were away, and it them.
    calm_after_us: int
    # Whether this client's program leaves retries of sends to itself.
    is_sent_once: bool = True

    def is_calm(self, began_us: int, before_s: int) -> bool:
        """Whether a send at this time, and the `before_s` seconds after it, met nothing unusual."""
        return not any(
            each.began_us - before_s * _S <= began_us <= each.ended_us + self.calm_after_us
            for each in self.disturbances
        )


Check = Callable[[History, Storm], list[str]]


@dataclass(frozen=True)
class Kind:
    """One row of the matrix."""

    name: str
    title: str
    check: Check


def number(key: str) -> int:
    return int(key.rpartition("-")[2])


def _at_least_once(
    history: History, storm: Storm, wanted: Wanted = everything, *, is_stored_once: bool = True
) -> list[str]:
    return [
        *history.troubles,
        *_shows_something(history, storm),
        *lost(history, wanted),
        *strangers(history, wanted),
        *displaced(history, is_stored_once=is_stored_once and storm.is_sent_once),
        *unexplained_doubles(history, storm.disturbances, storm.memory_us, storm.settling_us),
    ]


def _shows_something(history: History, storm: Storm) -> list[str]:
    """Both consumers took part, and each broker delivered after it had been away."""
    problems = [] if len(history.sent) >= _LEAST else [f"only {len(history.sent)} messages were sent"]
    consumers = {got.consumer for got in history.got}
    problems += [
        f"the {consumer} consumer was given nothing" for consumer in (FIRST, SECOND) if consumer not in consumers
    ]
    return problems + [
        f"nothing was given of {each.broker} after its {each.name}"
        for each in storm.disturbances
        if each.broker
        and not any(got.place.broker == each.broker and got.began_us > each.ended_us for got in history.got)
    ]


def _plain(history: History, storm: Storm) -> list[str]:
    return _at_least_once(history, storm)


def _oneway(history: History, storm: Storm) -> list[str]:
    given = {got.key for got in history.got}
    calm = [sent.key for sent in history.sent if storm.is_calm(sent.began_us, 1)]
    problems = [f"{key} was sent while all was well and never given" for key in calm if key not in given]
    return problems + _at_least_once(history, storm)


def _orderly(history: History, storm: Storm) -> list[str]:
    problems = _at_least_once(history, storm) + disordered(history)
    problems += overlaps(history, storm.disturbances, _LOCK_VALIDITY_US)
    return problems + disordered_shards(history, lambda key: number(key) % SHARDS)


def _delayed(delay_us: Callable[[str], int]) -> Check:
    def check(history: History, storm: Storm) -> list[str]:
        problems = _at_least_once(history, storm, is_stored_once=False)
        away_us = sum(each.ended_us - each.began_us for each in storm.disturbances)
        return problems + early(history, delay_us) + late(history, delay_us, _FORGOTTEN_PULL_US + away_us)

    return check


def _transaction(history: History, storm: Storm) -> list[str]:
    """Even numbers commit, odd ones roll back; of each, half say so only when they are asked."""
    problems = _at_least_once(history, storm, lambda key: number(key) % 2 == 0, is_stored_once=False)
    asked = {answer.key for answer in history.asked}
    return problems + [
        f"nobody asked about {sent.key}"
        for sent in history.acknowledged
        if number(sent.key) % 4 >= 2 and sent.key not in asked
    ]


def _request_reply(history: History, storm: Storm) -> list[str]:
    replies = {answer.key: answer.text for answer in history.replies if answer.text.startswith("re: ")}
    problems = [f"{key} was answered {text}" for key, text in replies.items() if text != f"re: {key}"]
    ended = {answer.key for answer in history.replies}
    problems += [f"{sent.key} was neither answered nor given up" for sent in history.sent if sent.key not in ended]
    # A consumer that has just begun comes to its last queue in its own time.
    begun_us = max((deliveries[0].began_us for deliveries in history.by_queue().values()), default=0)
    calm = [sent.key for sent in history.sent if begun_us < sent.began_us and storm.is_calm(sent.began_us, 2)]
    problems += [
        f"{key} was sent while all was well and never answered: {_what_became_of(history, storm, key)}"
        for key in calm
        if key not in replies and not _waits_for_a_forgotten_pull(history, storm, key)
    ]
    for each in storm.disturbances:
        if not any(a.key in replies and a.began_us > each.ended_us for a in history.replies):
            problems.append(f"no request was answered after: {each.name}")
    return problems + _at_least_once(history, storm)


def _waits_for_a_forgotten_pull(history: History, storm: Storm, key: str) -> bool:
    """Whether this request lay long at a broker that was away shortly before, and was given after all."""
    sent_us = next(sent.began_us for sent in history.sent if sent.key == key)
    return any(
        each.broker == got.place.broker
        and each.began_us <= got.began_us <= each.ended_us + _FORGOTTEN_PULL_US
        and got.began_us > sent_us + _LONG_US
        for got in history.got
        if got.key == key
        for each in storm.disturbances
    )


def _what_became_of(history: History, storm: Storm, key: str) -> str:
    """When a request was sent, given and given up, in seconds after the end of the disturbance before it."""
    began_us = next(sent.began_us for sent in history.sent if sent.key == key)
    before = [each for each in storm.disturbances if each.ended_us <= began_us]
    name, zero_us = (before[-1].name, before[-1].ended_us) if before else ("the beginning", history.sent[0].began_us)
    parts = [f"sent {(began_us - zero_us) / _S:.1f} s after {name}"]
    parts += [
        f"given to {got.consumer} of {got.place.broker} at {(got.began_us - zero_us) / _S:.1f}"
        for got in history.got
        if got.key == key
    ]
    parts += [
        f"ended at {(answer.ended_us - zero_us) / _S:.1f} by {answer.text}"
        for answer in history.replies
        if answer.key == key
    ]
    return ", ".join(parts)


def _broadcasting(history: History, storm: Storm) -> list[str]:
    """The second has all, the first has all that came while it was there."""
    leaving = next(each for each in storm.disturbances if each.name == "leave")
    before = {sent.key for sent in history.sent if sent.ended_us < leaving.began_us - storm.settling_us}
    problems = lost(history, consumers=[SECOND]) + lost(history, lambda key: key in before, consumers=[FIRST])
    per_consumer = []
    for consumer in (FIRST, SECOND):
        own = History(history.kind, got=[got for got in history.got if got.consumer == consumer])
        per_consumer += unexplained_doubles(own, storm.disturbances, storm.memory_us, storm.settling_us)
    problems += history.troubles + _shows_something(history, storm) + strangers(history)
    problems += displaced(history, is_stored_once=storm.is_sent_once)
    return problems + per_consumer


def _retry(history: History, storm: Storm) -> list[str]:
    """Numbers that 11 divides always fail and end as dead letters after two retries, those that 7 divides fail once."""
    problems = _at_least_once(history, storm)
    dead = {got.key for got in history.got if got.consumer == DEAD_LETTERS}
    times: dict[str, set[int]] = {}
    for got in history.got:
        if got.consumer != DEAD_LETTERS:
            times.setdefault(got.key, set()).add(got.times)
    for key, seen in times.items():
        is_poison, fails_once = number(key) % 11 == 0, number(key) % 7 == 0
        wanted = {0, 1, 2} if is_poison else {0, 1} if fails_once else {0}
        # A client whose broker is away tries again by itself, and counts that.
        if not (seen >= wanted if is_poison else seen == wanted):
            problems.append(f"{key} was tried as number {sorted(seen)}, not {sorted(wanted)}")
        if is_poison != (key in dead):
            problems.append(f"{key} is {'no' if is_poison else 'a'} dead letter")
    return problems


def _level_us(key: str) -> int:
    return (1, 5)[number(key) % 2] * _S


def _time_us(key: str) -> int:
    return (1 + number(key) % 4) * _S


KINDS = (
    Kind("concurrent", "sync send, push consumer", _plain),
    Kind("async", "async send, push consumer", _plain),
    Kind("oneway", "oneway send, push consumer", _oneway),
    Kind("batch", "batch send, push consumer in batches", _plain),
    Kind("orderly", "send to a queue per key, orderly push consumer", _orderly),
    Kind("delay-level", "delay level, push consumer", _delayed(_level_us)),
    Kind("delay-time", "any delay or time of delivery, push consumer", _delayed(_time_us)),
    Kind("transaction", "transaction with questions, push consumer", _transaction),
    Kind("request-reply", "request and reply", _request_reply),
    Kind(
        "tag-filter",
        "tags, push consumer",
        lambda history, storm: _at_least_once(history, storm, lambda key: number(key) % 3 != 1),
    ),
    Kind(
        "sql-filter",
        "SQL92 over properties, push consumer",
        lambda history, storm: _at_least_once(history, storm, lambda key: number(key) % 10 in (2, 3, 4, 5, 9)),
    ),
    Kind("lite-pull", "lite pull consumer that subscribes", _plain),
    Kind("pull", "pull consumer", _plain),
    Kind("broadcasting", "broadcasting push consumer", _broadcasting),
    Kind("retry", "retry, then dead letter", _retry),
    Kind("pop", "push consumer that pops", _plain),
)
BY_NAME = {kind.name: kind for kind in KINDS}


def is_through(history: History) -> bool:
    """Whether all that is to come has come, as far as one can know."""
    if history.kind == "request-reply":
        return len(history.replies) >= len(history.sent)
    wanted: Wanted = everything
    if history.kind == "transaction":
        if {sent.key for sent in history.acknowledged if number(sent.key) % 4 >= 2} - {
            answer.key for answer in history.asked
        }:
            return False
        wanted = lambda key: number(key) % 2 == 0  # noqa: E731
    elif history.kind == "tag-filter":
        wanted = lambda key: number(key) % 3 != 1  # noqa: E731
    elif history.kind == "sql-filter":
        wanted = lambda key: number(key) % 10 in (2, 3, 4, 5, 9)  # noqa: E731
    given = {got.key for got in history.got}
    if history.kind == "retry":
        given = {got.key for got in history.got if number(got.key) % 11 or got.consumer == DEAD_LETTERS}
    if history.kind == "broadcasting":
        given = {got.key for got in history.got if got.consumer == SECOND}
    return all(sent.key in given for sent in history.acknowledged if wanted(sent.key))

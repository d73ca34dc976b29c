"""What clients of any language did and saw, as lines that they print; fields are separated by tabs.

SENT    kind key began ended broker queue offset            acknowledged; queue -1 where the place says nothing
UNSURE  kind key began ended reason                         it may be there or not
GOT     kind key began ended broker queue offset consumer times topic
REPLY   kind key began ended text                           to a request
ASKED   kind key began ended                                about a transaction
PHASE   name at                                             all kinds are through with a step
TROUBLE kind text                                           the client itself failed
Times are microseconds of the system's clock, which all processes of a machine share.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    """Where a message stands."""

    broker: str
    queue_id: int
    offset: int


class Sent(NamedTuple):
    """One send; `place` is None where it was not acknowledged or says nothing to a consumer."""

    key: str
    began_us: int
    ended_us: int
    place: Place | None
    is_acknowledged: bool


class Got(NamedTuple):
    """One message given to a consumer, from the start of its handler to its end."""

    key: str
    began_us: int
    ended_us: int
    place: Place
    consumer: str
    times: int
    topic: str


class Answer(NamedTuple):
    """What came back to a request, or why nothing did; or a question about a transaction, without a text."""

    key: str
    began_us: int
    ended_us: int
    text: str


@dataclass
class History:
    """All that one kind of traffic did, in the order in which it was written down."""

    kind: str
    sent: list[Sent] = field(default_factory=list)
    got: list[Got] = field(default_factory=list)
    replies: list[Answer] = field(default_factory=list)
    asked: list[Answer] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def add(self, word: str, fields: list[str]) -> None:
        """One line without its first two fields.  Raises ValueError when it is none of the format above."""
        if word == "TROUBLE":
            self.troubles.append(" ".join(fields))
            return
        key, began_us, ended_us = fields[0], int(fields[1]), int(fields[2])
        if word == "SENT":
            place = Place(fields[3], int(fields[4]), int(fields[5]))
            self.sent.append(Sent(key, began_us, ended_us, place if place.queue_id >= 0 else None, True))
        elif word == "UNSURE":
            self.sent.append(Sent(key, began_us, ended_us, None, False))
        elif word == "GOT":
            place = Place(fields[3], int(fields[4]), int(fields[5]))
            self.got.append(Got(key, began_us, ended_us, place, fields[6], int(fields[7]), fields[8]))
        elif word == "REPLY":
            self.replies.append(Answer(key, began_us, ended_us, fields[3]))
        elif word == "ASKED":
            self.asked.append(Answer(key, began_us, ended_us, ""))
        else:
            raise ValueError(f"no such line: {word}")

    @property
    def acknowledged(self) -> list[Sent]:
        return [each for each in self.sent if each.is_acknowledged]

    def by_queue(self) -> dict[tuple[str, int], list[Got]]:
        """What consumers were given of each queue, in the order in which their handlers began."""
        queues: dict[tuple[str, int], list[Got]] = defaultdict(list)
        for got in sorted(self.got, key=lambda got: (got.began_us, got.place.offset)):
            queues[got.place.broker, got.place.queue_id].append(got)
        return queues


class Histories(dict[str, History]):
    """The history of each kind; fed line by line."""

    def __init__(self, kinds: Iterable[str]) -> None:
        super().__init__({kind: History(kind) for kind in kinds})

    def feed(self, line: str) -> None:
        """A line that is none of the format (a library's own words), or tells of a phase, is left alone."""
        word, *fields = line.rstrip("\n").split("\t")
        if len(fields) > 1 and fields[0] in self:
            self[fields[0]].add(word, fields[1:])

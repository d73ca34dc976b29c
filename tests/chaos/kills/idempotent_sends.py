"""Sends with ids that are repeated over the deaths of a broker, and what is wrong with their places."""

import asyncio
import random
from collections import Counter, deque
from typing import Final, NamedTuple

from sprocket.common.errors import ClientError
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.headers.send import DUPLICATES_FIELD, SendMessageResponseHeader
from sprocket.remoting.message.properties import IDEMPOTENCE_ID, encode
from tests.chaos.load import QUEUES, TOPIC, Refused, physical_offset_of, read_queue, sent, until_dead

_LANES: Final = 12
_BODY_BYTES: Final = 6000
# Of all sends, how many repeat an acknowledged id, and how many have no id.
_REPEATS: Final = 0.2
_ORDINARY: Final = 0.2
# Fewer than the sends that may wait until a broker has read its window.
_AT_ONCE: Final = 500


class Place(NamedTuple):
    """Place of a message in the broker."""

    queue: int
    queue_offset: int
    physical_offset: int


class IdempotentSends:
    """Ids that were sent, and the places that were acknowledged for them, over all lives of the broker.

    Lanes send side by side.  Each sends an id two or three times at once, to any queues, so copies race each other.  An
    id whose sends all remain without an answer is sent again later, before new ones.
    """

    def __init__(self, seed: int) -> None:
        self.places: dict[str, Place] = {}
        # Ids that the broker knew, though none of their sends before had an answer.
        self.kept_unanswered = 0
        self._wrong: list[str] = []
        self._dice = random.Random(seed)
        self._made = 0
        self._unanswered: deque[str] = deque()

    async def until_dead(self, address: str) -> None:
        """Send until the connection is lost.  Raises what else goes wrong."""
        await until_dead(address, _LANES, self._lane)

    async def _lane(self, client: RemotingClient, address: str) -> None:
        while True:
            kind = self._dice.random()
            if self._unanswered:
                await self._retry(client, address, self._unanswered.popleft())
            elif self.places and kind < _REPEATS:
                await self._repeat(client, address, self._dice.choice(list(self.places)))
            elif kind < _REPEATS + _ORDINARY:
                await sent(client, address, TOPIC, self._queue(), "", b"ordinary".ljust(_BODY_BYTES, b"."))
            else:
                self._made += 1
                await self._copies(client, address, f"i{self._made}")

    async def _copies(self, client: RemotingClient, address: str, id_: str) -> None:
        """Send a new id.  Raises ClientError when the broker ends, even if a copy was acknowledged."""
        count = self._dice.choice((2, 3))
        results = await asyncio.gather(
            *(self._send(client, address, id_) for _ in range(count)), return_exceptions=True
        )
        for result in results:
            if not isinstance(result, BaseException):
                self._acknowledged(id_, result[0])
        if id_ not in self.places:
            self._unanswered.append(id_)
        for result in results:
            if isinstance(result, BaseException):
                _raise_unless_undecided(result)

    async def _retry(self, client: RemotingClient, address: str, id_: str) -> None:
        """Send an id again that the broker may have stored or not."""
        try:
            place, duplicates = await self._send(client, address, id_)
        except (ClientError, Refused) as error:
            self._unanswered.append(id_)
            _raise_unless_undecided(error)
            return
        self.kept_unanswered += duplicates
        self._acknowledged(id_, place)

    async def _repeat(self, client: RemotingClient, address: str, id_: str) -> None:
        """Send an acknowledged id again: the broker must have it."""
        try:
            place, duplicates = await self._send(client, address, id_)
        except Refused as refused:
            _raise_unless_undecided(refused)
            return
        self._acknowledged(id_, place)
        if duplicates != 1:
            self._wrong.append(f"{id_}, acknowledged at {self.places[id_]}, was stored again at {place}")

    def _acknowledged(self, id_: str, place: Place) -> None:
        first = self.places.setdefault(id_, place)
        if place != first:
            self._wrong.append(f"{id_} was acknowledged at {first} and at {place}")

    async def _send(self, client: RemotingClient, address: str, id_: str) -> tuple[Place, int]:
        properties = encode({"UNIQ_KEY": f"K{id_}", IDEMPOTENCE_ID: id_})
        body = f"{id_}.".encode().ljust(_BODY_BYTES, b".")
        response = await sent(client, address, TOPIC, self._queue(), properties, body)
        header = response.header(SendMessageResponseHeader)
        place = Place(header.queue_id, header.queue_offset, physical_offset_of(header))
        return place, int(response.ext_fields[DUPLICATES_FIELD])

    def _queue(self) -> int:
        return self._dice.randrange(QUEUES)

    async def problems(self, address: str) -> list[str]:
        """Repeat every id that was ever sent, read the whole log, and return what is wrong with any life so far."""
        client = RemotingClient()
        try:
            # The first ones come while the broker reads its window from the log.
            ids = list(self.places)
            for first in range(0, len(ids), _AT_ONCE):
                await asyncio.gather(*(self._repeat(client, address, id_) for id_ in ids[first : first + _AT_ONCE]))
            while self._unanswered:
                await self._retry(client, address, self._unanswered.popleft())
            found: Counter[str] = Counter()
            keys: dict[tuple[int, int], str] = {}
            for queue in range(QUEUES):
                for offset, key in await read_queue(client, address, TOPIC, queue, 0):
                    found[key] += 1
                    keys[queue, offset] = key
        finally:
            await client.close()
        lost = [
            f"{id_} was acknowledged at {place}, where {keys.get(place[:2])} is"
            for id_, place in self.places.items()
            if keys.get(place[:2]) != id_
        ]
        counts = [f"{id_} is in the log {found[id_]} times" for id_ in self.places if found[id_] != 1]
        return self._wrong + lost + counts


def _raise_unless_undecided(error: BaseException) -> None:
    """Raise `error`, unless it says that the message is stored, but perhaps not yet on the disk."""
    if not isinstance(error, Refused) or error.code != ResponseCode.FLUSH_DISK_TIMEOUT:
        raise error

"""Producers and consumers of lite topics that find the master by asking, and write down what they are told.

A consumer acknowledges some of what it gets, in order, and forgets the rest.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sprocket.common.errors import ClientError, ProtocolError
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.lite import (
    LiteSubscriptionAction,
    LiteSubscriptionCtlRequestBody,
    LiteSubscriptionDTO,
    OffsetOption,
    OffsetOptionType,
)
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.lite import PopLiteMessageRequestHeader
from sprocket.remoting.headers.pop import AckMessageRequestHeader
from sprocket.remoting.message import properties as names
from tests.broker.lite.rig import LiteMessage, messages_of
from tests.broker.rig import create
from tests.send_headers import send_header
from tests.sim.cluster.machine import Machine
from tests.sim.cluster.profile import LISTEN_PORT

PARENT: Final = "Sessions"
LITES: Final = ("one", "two", "three", "four", "five")
_TIMEOUT_S: Final = 2.0
_INVISIBLE_MS: Final = 1_500


@dataclass(frozen=True)
class Kind:
    """A group: its attributes, and its clients with the lite topics that they name."""

    group: str
    clients: dict[str, tuple[str, ...]]
    attributes: dict[str, str] = field(default_factory=dict)
    resets: bool = False


KINDS: Final = (
    Kind("Shared", {"s1": LITES[:3], "s2": LITES[1:], "s3": LITES}),
    Kind("Exclusive", {"x1": LITES, "x2": LITES}, {"lite.sub.model": "Exclusive"}),
    Kind("Wild", {"w1": (), "w2": ()}, {"lite.sub.wildcard": "true"}),
    Kind("Reset", {"r1": LITES}, resets=True),
)


class LiteClients:
    """All of them, in one process.  `place` tells which run of a broker serves at an address, in which epoch."""

    def __init__(self, machine: Machine, brokers: Sequence[str], place: Callable[[str], object]) -> None:
        self.acked: dict[str, list[str]] = {lite: [] for lite in LITES}
        self.problems: list[str] = []
        self.answers: Counter[str] = Counter()
        self.is_sending = True
        self.got: dict[tuple[str, str], dict[str, None]] = {}  # group and lite topic -> keys, the first delivered first
        self._done: dict[tuple[str, str], object] = {}  # group and key -> where it was acknowledged
        self._held: dict[tuple[str, str], tuple[object, int, set[str]]] = {}  # place, end of invisibility, keys
        self._place = place
        self._brokers = brokers
        self._rng = machine.scheduler.rng
        self._numbers = iter(range(1 << 40))
        self._clock = machine
        self._process = machine.start_process()
        self._process.call_soon(self._begin)

    def _begin(self) -> None:
        works = [self._operate(), *(self._send(lite) for lite in LITES)]
        works += [self._consume(kind, client) for kind in KINDS for client in kind.clients]
        for work in works:
            self._process.create_task(work).add_done_callback(lambda task: task.result())

    async def _ask(
        self, client: RemotingClient, ip: str, code: RequestCode, header: Header | None, body: bytes = b""
    ) -> ReceivedResponse | None:
        try:
            answer = await client.invoke(f"{ip}:{LISTEN_PORT}", code, header, body, timeout_s=_TIMEOUT_S)
        except (ClientError, ProtocolError):
            self.answers[f"{code.name} lost"] += 1
            return None
        self.answers[f"{code.name} {ResponseCode(answer.code).name}"] += 1
        return answer

    async def _operate(self) -> None:
        """Create parent and groups at every broker: a master takes them, and its slaves copy them."""
        client = RemotingClient(connect_timeout_s=0.5)
        topic = create(PARENT, attributes="+message.type=LITE,+lite.topic.expiration=1")
        while self.is_sending:
            for ip in self._brokers:
                await self._ask(client, ip, RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
                for kind in KINDS:
                    changes = {"+lite.bind.topic": PARENT} | {f"+{key}": text for key, text in kind.attributes.items()}
                    body = dumps(SubscriptionGroupConfig(kind.group, attributes=changes))
                    await self._ask(client, ip, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
            await asyncio.sleep(0.5)

    async def _send(self, lite: str) -> None:
        client, at = RemotingClient(connect_timeout_s=0.5), 0
        while self.is_sending:
            await asyncio.sleep(self._rng.uniform(0.01, 0.15))
            key = f"k{next(self._numbers)}"
            header = send_header(PARENT, properties=f"{names.LITE_TOPIC}\x01{lite}\x02")
            answer = await self._ask(client, self._brokers[at], RequestCode.SEND_MESSAGE_V2, header, key.encode())
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self.acked[lite].append(key)
            else:
                at = (at + 1) % len(self._brokers)

    async def _consume(self, kind: Kind, client_id: str) -> None:
        client, at, turns = RemotingClient(connect_timeout_s=0.5), 0, 0
        while True:
            ip = self._brokers[at]
            if turns % 8 == 0 and not await self._subscribe(client, ip, kind, client_id):
                at = (at + 1) % len(self._brokers)
                await asyncio.sleep(0.05)
                continue
            turns += 1
            header = PopLiteMessageRequestHeader(
                client_id=client_id, consumer_group=kind.group, topic=PARENT, max_msg_num=self._rng.randint(1, 4),
                invisible_time=_INVISIBLE_MS, poll_time=1_000, born_time=0,
            )  # fmt: skip
            answer = await self._ask(client, ip, RequestCode.POP_LITE_MESSAGE, header)
            if answer is None or answer.code not in (ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT):
                turns = 0
                at = (at + 1) % len(self._brokers)
                await asyncio.sleep(0.05)
            elif answer.code == ResponseCode.SUCCESS:
                messages = messages_of(answer)
                self._delivered(kind, ip, messages)
                await self._acknowledge(client, ip, kind, messages)

    async def _subscribe(self, client: RemotingClient, ip: str, kind: Kind, client_id: str) -> bool:
        action, option = LiteSubscriptionAction.COMPLETE_ADD, None
        if kind.attributes.get("lite.sub.model") and self._rng.random() < 0.5:
            action = LiteSubscriptionAction.PARTIAL_ADD  # takes the lite topics from the other client
        # At the end it must read all, for which it must stop to go back to the first message.
        if kind.resets and self._rng.random() < 0.2 and self.is_sending:
            action, option = LiteSubscriptionAction.PARTIAL_ADD, OffsetOption(OffsetOptionType.POLICY, 1)
        change = LiteSubscriptionDTO(action, client_id, kind.group, PARENT, list(kind.clients[client_id]), option)
        body = dumps(LiteSubscriptionCtlRequestBody([change]))
        answer = await self._ask(client, ip, RequestCode.LITE_SUBSCRIPTION_CTL, None, body)
        return answer is not None and answer.code == ResponseCode.SUCCESS

    def _delivered(self, kind: Kind, ip: str, messages: Sequence[LiteMessage]) -> None:
        place = self._place(ip)
        for lite in dict.fromkeys(message.lite for message in messages):
            some = [message for message in messages if message.lite == lite]
            keys = [message.body.decode() for message in some]
            self.got.setdefault((kind.group, lite), {}).update(dict.fromkeys(keys))
            if kind.resets:
                continue
            popped_ms = int(some[0].handle.split(" ")[1])
            where, until_ms, open_keys = self._held.get((kind.group, lite), (None, 0, set()))
            if where == place and popped_ms < until_ms and open_keys:
                self.problems.append(f"{kind.group} got {keys} of {lite} while {sorted(open_keys)} were invisible")
            for key in keys:
                if self._done.get((kind.group, key)) == place:
                    self.problems.append(f"{kind.group} got {key} of {lite} again after its acknowledgement")
            self._held[kind.group, lite] = place, popped_ms + _INVISIBLE_MS, set(keys)

    async def _acknowledge(
        self, client: RemotingClient, ip: str, kind: Kind, messages: Sequence[LiteMessage]
    ) -> None:  # fmt: skip
        count = len(messages) if self._rng.random() < 0.8 else self._rng.randrange(len(messages) + 1)
        place = self._place(ip)
        for message in messages[:count]:
            key, held = message.body.decode(), self._held.get((kind.group, message.lite))
            if held is not None:
                held[2].discard(key)
            header = AckMessageRequestHeader(
                consumer_group=kind.group, topic=PARENT, queue_id=0, extra_info=message.handle, offset=message.offset,
                lite_topic=message.lite,
            )  # fmt: skip
            answer = await self._ask(client, ip, RequestCode.ACK_MESSAGE, header)
            if answer is None or answer.code != ResponseCode.SUCCESS:
                return
            # Too late, it counts for nothing: the message may be invisible for another client by then.
            sent_ms = int(message.handle.split(" ")[1])
            if self._clock.wall_ms() < sent_ms + _INVISIBLE_MS and self._place(ip) == place:
                self._done[kind.group, key] = place

    # The end

    def missing(self) -> list[str]:
        """Return what a group has not got of the acknowledged messages."""
        found = []
        for kind in KINDS:
            for lite, keys in self.acked.items():
                got = self.got.get((kind.group, lite), {})
                found += [f"{kind.group} has not got {key} of {lite}" for key in keys if key not in got]
        return found

    def disordered(self) -> list[str]:
        """Return where a group first got a message of a lite topic after a later one."""
        found = []
        for kind in KINDS:
            for lite, keys in self.acked.items() if not kind.resets else ():
                first = {key: place for place, key in enumerate(self.got.get((kind.group, lite), {}))}
                places = [first[key] for key in keys if key in first]
                if places != sorted(places):
                    found.append(f"{kind.group} got messages of {lite} out of order")
        return found

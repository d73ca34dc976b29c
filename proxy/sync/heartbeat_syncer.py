"""Syncer of consumers: tells the other proxies of those that are connected here, and hears of theirs.

The messages go through a topic that each proxy reads whole, in RocketMQ's format, so that both kinds of proxies agree
on the members of a group.  Source: RocketMQ 5.3.3, `HeartbeatSyncer`, `AbstractSystemMessageSyncer`.  Different here:
an unchanged consumer is told of every 25 s, not with each heartbeat; and a proxy that starts reads the last
`channelExpiredTimeout` again, so that it knows all members at once.
"""

import asyncio
import json
import logging
import zlib
from collections.abc import Callable, Coroutine
from typing import Final

from proxy.brokers.brokers import TIMEOUT_S, Brokers
from proxy.clients.members import Consumers, Member
from proxy.config import ProxyConfig
from proxy.status import Refusal
from proxy.sync.heartbeat_data import REGISTER, consumer_of, decode, encode, member_of
from sprocket.client.answers import header_of
from sprocket.client.connection.wakeup import Wakeup, pause
from sprocket.client.errors import ClientError, TopicNotFound
from sprocket.client.pull.record_decoder import decode_records
from sprocket.client.send.send_request import SendRequest, SendSettings
from sprocket.common.errors import ProtocolError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.remoting.bodies.client import ConsumerData, MessageQueue
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.offset import SearchOffsetRequestHeader, SearchOffsetResponseHeader
from sprocket.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader

logger = logging.getLogger(__name__)

_REPEAT_S: Final = 25.0
_PULL_BATCH: Final = 64
_HOLD_MS: Final = 15_000
_HOLD_SLACK_S: Final = 5.0
_RETRY_S: Final = 1.0
_LEAVE_S: Final = 2.0
_LOOK_S: Final = 5.0
# `PullSysFlag`: the broker may hold the request; it has the subscription.
_SYS_FLAG: Final = 0x2 | 0x4
_EMPTY: Final = frozenset({ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY})
# Members of other proxies, and messages that wait to be sent.
MAX_REMOTE: Final = 100_000
_SETTINGS: Final = SendSettings()


class HeartbeatSyncer:
    """Syncer of one proxy.  `address` is how operators call it; `extra` returns what a client told of itself."""

    def __init__(
        self,
        brokers: Brokers,
        consumers: Consumers,
        config: ProxyConfig,
        address: Callable[[], str],
        extra: Callable[[Member], str | None],
        spawn: Callable[[Coroutine[object, object, None]], "asyncio.Task[None]"],
    ) -> None:
        self._brokers = brokers
        self._consumers = consumers
        self._config = config
        self._address = address
        self._extra = extra
        self._spawn = spawn
        self._clock = brokers.instance.clock
        self._topic = config.heartbeat_syncer_topic_name
        self._waiting: dict[tuple[str, str], tuple[Member, ConsumerData | None]] = {}
        # What was told of each member here: when (monotonic s), its settings, and its first addresses.
        self._told: dict[tuple[str, str], tuple[float, ConsumerData, Member]] = {}
        self._due = Wakeup()
        self._reading: dict[MessageQueue, asyncio.Task[None]] = {}
        consumers.on_heard.append(self._heard)
        consumers.on_left.append(self._left)

    @property
    def proxy_id(self) -> str:
        """Id of this proxy among all; several may share an address and ports."""
        config = self._config
        ports = f"{config.remoting_listen_port}%{config.grpc_server_port}"
        return f"{self._address()}%{ports}%{self._brokers.instance.client_id}"

    def start(self) -> None:
        """Begin to tell and to hear."""
        self._spawn(self._run())

    def _heard(self, member: Member, data: ConsumerData) -> None:
        key = (data.group_name, member.key)
        told = self._told.get(key)
        if told is not None and told[1] == data and self._clock.monotonic() - told[0] < _REPEAT_S:
            return
        if len(self._told) >= MAX_REMOTE and told is None:
            return
        # The addresses are part of a channel's id: those of the first heartbeat stay, whatever connection brings more.
        first = member if told is None else told[2]
        self._told[key] = (self._clock.monotonic(), data, first)
        self._waiting[key] = (first, data)
        self._due.set()

    def _left(self, member: Member, group: str) -> None:
        told = self._told.pop((group, member.key), None)
        if told is not None:
            self._waiting[group, member.key] = (told[2], None)
            self._due.set()

    async def _run(self) -> None:
        while not await self._has_topic():
            await pause(_RETRY_S)
        self._spawn(self._tell())
        while True:
            try:
                route = await self._brokers.route(self._topic)
                for queue in route.subscribe:
                    if queue not in self._reading:
                        self._reading[queue] = self._spawn(self._read(queue))
            except ClientError as error:
                logger.info("event=sync_route_not_read reason=%r", str(error))
            await pause(_LOOK_S)

    async def _has_topic(self) -> bool:
        """Create the topic on every master of the cluster, unless it is there.  Return whether there is one."""
        cluster = self._config.heartbeat_syncer_topic_cluster_name or self._config.rocketmq_cluster_name
        try:
            await self._brokers.create_topic(self._topic, cluster)
            return bool((await self._brokers.instance.refresh_route(self._topic)).subscribe)
        except TopicNotFound:
            return False  # the broker has it, and the name server will
        except (ClientError, Refusal) as error:
            logger.warning(
                "event=sync_topic_not_created topic=%s reason=%r note=%r", self._topic, str(error),
                "consumers of other proxies are not known before; create the topic, or let the proxy create it",
            )  # fmt: skip
            return False

    # Telling

    async def _tell(self) -> None:
        while True:
            await self._due.wait(_REPEAT_S)
            while self._waiting:
                await self._send_batch()

    async def _send_batch(self) -> None:
        batch = [(*self._waiting.pop(key), key[0]) for key in list(self._waiting)[:_PULL_BATCH]]
        await asyncio.gather(*(self._send(*entry) for entry in batch))

    async def leave(self) -> None:
        """Tell the other proxies that every consumer here leaves; within `_LEAVE_S`."""
        for (group, _), (_, _, member) in list(self._told.items()):
            self._left(member, group)
        try:
            async with asyncio.timeout(_LEAVE_S):
                while self._waiting:
                    await self._send_batch()
        except TimeoutError:
            logger.warning("event=sync_not_finished count=%d", len(self._waiting))

    async def _send(self, member: Member, data: ConsumerData | None, group: str) -> None:
        extra = self._extra(member)
        if extra is None:
            extra = "" if data is None else dumps_text(data)
        now_ms = self._clock.wall_ms()
        body = encode(member, group, data, self.proxy_id, self._address(), now_ms, extra)
        try:
            route = await self._brokers.route(self._topic)
            if not route.rotation:
                raise TopicNotFound(self._topic, "")
            # What is told of one member stays in order.
            queue = route.rotation[zlib.crc32(member.key.encode()) % len(route.rotation)]
            request = SendRequest(self._topic, body, "", "")
            fields = request.ext_fields(f"PID_{self._topic}", _SETTINGS, queue, now_ms)
            answer = await self._brokers.ask(queue.broker_name, request.code, fields, body, timeout_s=TIMEOUT_S)
            self._brokers.success(answer, queue.broker_name)
        except (ClientError, Refusal) as error:
            # The next heartbeat tells it again.
            self._told.pop((group, member.key), None)
            peer_lines.warning(
                logger, member.client_id, "event=sync_not_sent group=%s client=%s reason=%r", group, member.client_id,
                str(error),
            )  # fmt: skip

    # Hearing

    async def _read(self, queue: MessageQueue) -> None:
        try:
            offset = None
            while True:
                try:
                    offset = await self._first(queue) if offset is None else await self._pull(queue, offset)
                except (ClientError, Refusal, ProtocolError) as error:
                    logger.info("event=sync_not_read queue=%s reason=%r", queue.broker_name, str(error))
                    await pause(_RETRY_S)
        finally:
            self._reading.pop(queue, None)

    async def _first(self, queue: MessageQueue) -> int:
        """Return the offset of the oldest message that can still say something."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name,
            timestamp=self._clock.wall_ms() - self._config.channel_expired_timeout,
        )  # fmt: skip
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        answer = await self._brokers.ask(queue.broker_name, code, header, timeout_s=TIMEOUT_S)
        return header_of(self._brokers.success(answer, queue.broker_name), SearchOffsetResponseHeader).offset

    async def _pull(self, queue: MessageQueue, offset: int) -> int:
        """Take the next messages; return the offset after them."""
        header = PullMessageRequestHeader(
            consumer_group=f"CID_{self._topic}", topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset,
            max_msg_nums=_PULL_BATCH, sys_flag=_SYS_FLAG, commit_offset=0, suspend_timeout_millis=_HOLD_MS,
            subscription="*", sub_version=0, expression_type="TAG", broker_name=queue.broker_name,
        )  # fmt: skip
        limit_s = _HOLD_MS / 1000 + _HOLD_SLACK_S
        answer = await self._brokers.ask(queue.broker_name, RequestCode.PULL_MESSAGE, header, timeout_s=limit_s)
        if answer.code in _EMPTY or answer.code == ResponseCode.PULL_OFFSET_MOVED:
            return header_of(answer, PullMessageResponseHeader).next_begin_offset
        found = header_of(self._brokers.success(answer, queue.broker_name), PullMessageResponseHeader)
        for message in decode_records(answer.body, queue, found.offset_delta or 0, offset):
            try:
                self._take(message.body)
            except ProtocolError as error:
                peer_lines.warning(
                    logger, "", "event=sync_message_ignored offset=%d reason=%r", message.queue_offset, str(error)
                )
        return found.next_begin_offset

    def _take(self, body: bytes) -> None:
        """Take one message of any proxy.  Raises ProtocolError."""
        data = decode(body)
        if data.local_proxy_id == self.proxy_id:
            return
        # Clocks of machines differ: a message of the future is as good as one of now.
        age_s = max(0, self._clock.wall_ms() - data.last_update_timestamp) / 1000
        if age_s * 1000 > self._config.channel_expired_timeout:
            return
        member = member_of(data, self._clock.monotonic() - age_s)
        if data.heartbeat_type != REGISTER:
            self._consumers.leave(data.group, member.key, "left_other_proxy")
        elif self._consumers.remote_count < MAX_REMOTE:
            self._consumers.heard(member, consumer_of(data))


def dumps_text(data: ConsumerData) -> str:
    """Return the subscriptions of a remoting client as its channel's attribute.  Source: `RemotingChannel`."""
    return json.dumps(json.loads(dumps(data))["subscriptionDataSet"], separators=(",", ":"))

"""One object for a cluster: connections, routes, credentials and TLS of all its producers and consumers."""

import asyncio
import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from sprocket.client import arguments
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.connection.client_instance import ClientSettings, settings_of
from sprocket.client.connection.owner import Closable, OpenParts
from sprocket.client.consume.consume_settings import ConsumeSettings, MessageModel
from sprocket.client.consume.subscription import Topics
from sprocket.client.consumer import Consumer
from sprocket.client.errors import IllegalArgument
from sprocket.client.grpc.address import endpoints
from sprocket.client.grpc.refused import needs_name_server
from sprocket.client.lite.names import SESSION_GROUP, SESSION_TOPIC
from sprocket.client.lite.start import LiteStart
from sprocket.client.lite_consumer import LiteConsumer, Lost
from sprocket.client.message import Message
from sprocket.client.openable import Openable
from sprocket.client.orderly_consumer import OrderlyConsumer, OrderlySettings
from sprocket.client.pop.pop_settings import PopSettings
from sprocket.client.producer import Producer
from sprocket.client.rebalance.allocation import AllocateMessageQueueStrategy
from sprocket.client.rebalance.listener import ConsumerListener
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.schedules import Schedules, schedule_of
from sprocket.client.send.producer_link import ProducerLink
from sprocket.client.send.send_request import SendSettings
from sprocket.client.session import Readers, Session
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.transaction import Checker, TransactionProducer
from sprocket.client.typed.consumer import Undecodable
from sprocket.client.typed.serializers import Serializer, serializer_of
from sprocket.client.typed.table import TABLE_GROUP, Table
from sprocket.client.typed.topic import Topic
from sprocket.common.extras import missing_package
from sprocket.remoting.bodies.schedule import CatchUp, ScheduleState
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.renewed_token import Fetch, RenewedToken
from sprocket.remoting.tls.settings import TlsSettings

T = TypeVar("T")
# Producer group of `Connection.producer` without a name.
DEFAULT_GROUP = "sprocket"
# Brokers bound what each session has, so one that is slow does not stop the others.
_SESSIONS: Final = PopSettings(pop_threshold_for_queue=sys.maxsize)


def connect(
    namesrv: str | Sequence[str] = "",
    *,
    credentials: Credentials | Fetch | None = None,
    tls: TlsSettings | None = None,
    client: ClientSettings | None = None,
    trace: TraceSettings | None = None,
    namespace: str = "",
) -> "Connection":
    """Return a connection to the cluster of `namesrv`, to be used with `async with`, or with `start` and `close`.

    With addresses of proxies, ``grpc://host:8081`` or ``grpc://a:8081;b:8081``, it speaks gRPC; see docs/client.md.
    Without `namesrv` the environment variable NAMESRV_ADDR has the address.  With `credentials` every request is
    signed, with `tls` every connection is TLS.  An async function as `credentials` returns a token (JWT); it is called
    again before the token ends.  `client` has further settings; each of these may be given there or here.
    With `trace` all producers and consumers record what they do, unless they are given another.
    With `namespace`, such as ``shop|orders``, all names of topics and groups are those in it, see docs/namespaces.md.
    Raises IllegalArgument.
    """
    if callable(credentials):
        credentials = RenewedToken(credentials)
    arguments.optional("credentials", credentials, Credentials)
    arguments.optional("tls", tls, TlsSettings)
    settings = settings_of(namesrv, client)
    given: dict[str, Any] = {"credentials": credentials, "tls": tls, "namespace": namespace}
    for name in [name for name, value in given.items() if value and getattr(settings, name)]:
        raise IllegalArgument(f"{name} is given twice; pass it to connect, or in ClientSettings")
    settings = replace(settings, **{name: value for name, value in given.items() if value})
    arguments.optional("trace", trace, TraceSettings)
    proxies = endpoints(settings.namesrv)
    if proxies is None:
        return Connection(settings, trace)
    if trace is not None:
        raise needs_name_server("message trace")
    return _grpc_connection(replace(settings, namesrv=proxies))


def _grpc_connection(settings: ClientSettings) -> "Connection":
    """Return a connection to the proxies in `settings.namesrv`, addresses without scheme.

    Raises IllegalArgument without grpcio, which only this kind needs.
    """
    try:
        made = importlib.import_module("sprocket.client.grpc.connection")
    except ImportError as error:
        missing = missing_package(error, "a grpc:// address", "grpc")
        if missing is None:
            raise
        raise IllegalArgument(missing) from None
    connection: Connection = made.GrpcConnection(settings)
    return connection


class Connection(Openable):
    """Producers, consumers and the administration of one cluster; made by `connect`::

        async with sprocket.connect("127.0.0.1:9876") as mq:
            await mq.producer().send(Message("Flights", b"JFK-LAX"))
            async for message in mq.consumer("readers", "Flights"):
                await message.ack()

    Nothing connects before its first use.  All producers share one client id and one connection to each broker.  Each
    consumer has its own, because it is a member of its group on its own, and its deliveries must not delay sends.
    """

    def __init__(self, settings: ClientSettings, trace: TraceSettings | None = None) -> None:
        """`trace` is that of parts that are given none."""
        self._settings = settings
        self._trace = trace
        self._link = self._new_link()
        self._admin = self._new_admin()
        # They share the link.
        self._producers: dict[tuple[str, SendSettings, TraceSettings | None], Producer] = {}
        self._separate: list[Producer] = []  # they have connections of their own
        self._parts = OpenParts()  # consumers
        self._readers = Readers(self._session_consumer)

    def _new_link(self) -> ProducerLink:
        return ProducerLink(self._settings)

    def _new_admin(self) -> AdminClient | None:
        settings = self._settings
        servers = arguments.addresses("namesrv", settings.namesrv)
        return AdminClient(servers, credentials=settings.credentials, tls=settings.tls)

    def _new_producer(self, group: str, settings: SendSettings | None, trace: TraceSettings | None) -> Producer:
        return Producer(group, settings=settings, link=self._link, trace=trace)

    async def start(self) -> None:
        """Start without connecting; a second call does nothing.

        Raises TlsUnusable for invalid TLS files, ClientClosed after `close`.
        """
        parts = self._parts
        if not parts.is_open:
            if parts.is_closed:
                parts.check_open()
            await self._link.instance.open()
            if self._admin is not None:
                await self._admin.start()
            parts.opened()
        parts.check_open()

    async def close(self) -> None:
        """Close everything that this connection made: first the consumers, then the producers; handlers may send.

        Running handlers end and outstanding sends get their results first, within limits.  Raises ClientError in
        another event loop.
        """
        parts = self._parts
        if parts.is_open and not parts.is_closed:
            parts.check_open()
        has_work = parts.is_open and not parts.is_closed
        parts.is_closed = True
        if not has_work:
            return
        async with AsyncExitStack() as stack:  # the last is closed first
            stack.push_async_callback(self._link.instance.close)
            if self._admin is not None:
                stack.push_async_callback(self._admin.close)
            stack.push_async_callback(_close_all, [*self._producers.values(), *self._separate])
            stack.push_async_callback(_close_all, parts.listed())

    @property
    def namespace(self) -> str:
        """Namespace of all names of topics and groups; the empty text without one."""
        return self._settings.namespace

    # Parts

    @property
    def admin(self) -> AdminClient:
        """Requests of an operator: topics, groups, offsets, messages.  Raises IllegalArgument over gRPC."""
        if self._admin is None:
            raise needs_name_server("administration")
        return self._admin

    @property
    def schedules(self) -> Schedules:
        """Requests about schedules: list, get, pause, resume, delete, trigger.  Raises IllegalArgument over gRPC."""
        return Schedules(self.admin, self._settings.namespace)

    async def schedule(
        self,
        name: str,
        *,
        topic: str,
        body: bytes,
        cron: str = "",
        every: timedelta | float | None = None,
        tz: str = "UTC",
        tags: str = "",
        keys: Iterable[str] | str = (),
        properties: Mapping[str, str] | None = None,
        delay: timedelta | float | None = None,
        catch_up: CatchUp | str = CatchUp.LAST,
        max_catch_up: int = 100,
        jitter: timedelta | float = 0,
        replace: bool = True,
    ) -> ScheduleState:
        """Let a broker send a message again and again: at the times of `cron` in the time zone `tz`, or every `every`.

        A second call changes the schedule of this name; without `replace` it is refused.  `catch_up` says which times
        a broker makes up for that it missed, `jitter` how much later than its time a message may be sent.  See
        docs/schedules.md.  Raises AdminError, IllegalArgument or IllegalMessage.
        """
        message = Message(topic, body, tags=tags, keys=keys, properties=properties, delay=delay)
        wanted = schedule_of(
            name, message, cron=cron, every=every, tz=tz, catch_up=catch_up, max_catch_up=max_catch_up, jitter=jitter
        )
        return await self.schedules.put(wanted, replace=replace)

    def producer(
        self, group: str = DEFAULT_GROUP, *, settings: SendSettings | None = None, trace: TraceSettings | None = None
    ) -> Producer:
        """Return the producer of `group`, which all calls with the same arguments share.

        It opens at its first use and closes with this connection.  With `trace` it records what it sends.
        """
        trace = arguments.optional("trace", trace, TraceSettings) or self._trace
        key = group, settings or SendSettings(), trace
        known = self._producers.get(key)
        if known is None or known.is_closed:
            known = self._producers[key] = self._new_producer(group, settings, trace)
        return known

    def topic(
        self,
        name: str,
        type: type[T],
        *,
        serializer: Serializer[T] | None = None,
        undecodable: Undecodable = Undecodable.DEAD_LETTER,
        group: str = DEFAULT_GROUP,
        settings: SendSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> Topic[T]:
        """Return a topic whose messages are values of `type`; `group`, `settings` and `trace` are its producer's.

        Without `serializer` bytes are sent as they are, pydantic models, dataclasses, msgspec structs and builtin types
        as JSON, protobuf messages in their binary form.  `undecodable` says what happens to a body that does not
        decode.  Raises IllegalArgument.
        """
        return Topic(self, name, serializer or serializer_of(type), undecodable, group, settings=settings, trace=trace)

    def table(
        self, name: str, type: type[T], *, serializer: Serializer[T] | None = None, group: str = TABLE_GROUP
    ) -> Table[T]:
        """Return the table of the compacted topic `name`: the last value of each key, to be used with `async with`.

        Values are of `type`, as in `topic`.  It reads as `group`, of which brokers keep no offsets, so all tables may
        have the same.  Raises IllegalArgument.
        """
        return Table(
            name, serializer or serializer_of(type), self.producer, group=group, client=self._settings,
            owner=self._parts,
        )  # fmt: skip

    def transaction_producer(
        self,
        group: str,
        *,
        checker: Checker,
        check_threads: int = 4,
        settings: SendSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> TransactionProducer:
        """Return a producer of transactional messages; start it with `async with`, because brokers send it checks."""
        producer = TransactionProducer(
            group, checker=checker, check_threads=check_threads, settings=settings, client=self._settings,
            trace=trace or self._trace,
        )  # fmt: skip
        self._separate.append(producer)
        return producer

    def consumer(
        self,
        group: str,
        topics: Topics = (),
        *,
        model: MessageModel = MessageModel.CLUSTERING,
        consume_from: ConsumeFrom | datetime = ConsumeFrom.LAST,
        max_in_flight: int | None = None,
        listener: ConsumerListener | None = None,
        strategy: AllocateMessageQueueStrategy | None = None,
        settings: ConsumeSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> Consumer:
        """Return a consumer, which opens at its first use and closes with this connection, or at `close`."""
        return Consumer(
            group, topics, model=model, consume_from=consume_from, max_in_flight=max_in_flight, listener=listener,
            strategy=strategy, settings=settings, client=self._settings, trace=trace or self._trace, owner=self._parts,
        )  # fmt: skip

    def orderly_consumer(
        self,
        group: str,
        topics: Topics = (),
        *,
        consume_from: ConsumeFrom | datetime = ConsumeFrom.LAST,
        listener: ConsumerListener | None = None,
        strategy: AllocateMessageQueueStrategy | None = None,
        settings: OrderlySettings | None = None,
        trace: TraceSettings | None = None,
    ) -> OrderlyConsumer:
        """Return a consumer that handles each queue in order.  It opens and closes as that of `consumer`."""
        return OrderlyConsumer(
            group, topics, consume_from=consume_from, listener=listener, strategy=strategy, settings=settings,
            client=self._settings, trace=trace or self._trace, owner=self._parts,
        )  # fmt: skip

    def simple_consumer(
        self,
        group: str,
        topics: Topics,
        *,
        consume_from: ConsumeFrom = ConsumeFrom.LAST,
        ordered: bool = False,
        settings: PopSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> SimpleConsumer:
        """Return a consumer that pops single messages.  It opens and closes as that of `consumer`."""
        return SimpleConsumer(
            group, topics, consume_from=consume_from, ordered=ordered, settings=settings,
            client=self._settings, trace=trace or self._trace, owner=self._parts,
        )  # fmt: skip

    def lite_consumer(
        self,
        group: str,
        topic: str,
        lite_topics: Iterable[str] | str = (),
        *,
        start: LiteStart | None = None,
        on_lost: Lost | None = None,
        settings: PopSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> LiteConsumer:
        """Return a consumer of lite topics of `topic`.  It opens and closes as that of `consumer`."""
        return LiteConsumer(
            group, topic, lite_topics, start=start, on_lost=on_lost, settings=settings, client=self._settings,
            trace=trace or self._trace, owner=self._parts,
        )  # fmt: skip

    def session(
        self,
        id: str,
        *,
        topic: str = SESSION_TOPIC,
        group: str = SESSION_GROUP,
        peer: str | None = None,
        start: LiteStart | None = None,
    ) -> Session:
        """Return the session `id`: an ordered channel, which is a lite topic of `topic`.

        It reads as a member of `group`, which is bound to `topic` (`AdminClient.create_session_topic` makes both), and
        sends to the session `peer`; without a peer, to itself.  `start` says where to read first, as in
        `LiteConsumer.subscribe`.  All sessions of a topic and group share connections.  Raises IllegalArgument.
        """
        return Session(id, topic, group, peer, start, self.producer, self._readers)

    def _session_consumer(self, group: str, topic: str, on_lost: Lost) -> LiteConsumer:
        return self.lite_consumer(group, topic, on_lost=on_lost, settings=_SESSIONS)


async def _close_all(parts: Iterable[Closable]) -> None:
    """Close `parts` side by side.  Raises the first error after all have closed."""
    outcomes = await asyncio.gather(*(part.close() for part in parts), return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome

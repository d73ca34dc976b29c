"""The blocking form of `sprocket.connect`."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from sprocket.client import connect as aio
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.consume.consume_settings import ConsumeSettings, MessageModel
from sprocket.client.consume.subscription import Topics
from sprocket.client.lite.names import SESSION_GROUP, SESSION_TOPIC
from sprocket.client.lite.start import LiteStart
from sprocket.client.lite_consumer import Lost
from sprocket.client.orderly_consumer import OrderlySettings
from sprocket.client.rebalance.allocation import AllocateMessageQueueStrategy
from sprocket.client.rebalance.listener import ConsumerListener
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.send.send_request import SendSettings
from sprocket.client.simple_consumer import PopSettings
from sprocket.client.sync.admin import Admin
from sprocket.client.sync.blocking import Blocking
from sprocket.client.sync.consumers import Consumer, OrderlyConsumer
from sprocket.client.sync.lite import LiteConsumer, Session, in_thread
from sprocket.client.sync.producers import Checker, Producer, TransactionProducer, checking
from sprocket.client.sync.schedules import Schedules
from sprocket.client.sync.simple_consumer import SimpleConsumer
from sprocket.client.sync.typed import Table, Topic
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.typed.consumer import Undecodable
from sprocket.client.typed.serializers import Serializer
from sprocket.client.typed.table import TABLE_GROUP
from sprocket.remoting.bodies.schedule import CatchUp, ScheduleState
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.renewed_token import Fetch
from sprocket.remoting.tls.settings import TlsSettings

T = TypeVar("T")


def connect(
    namesrv: str | Sequence[str] = "",
    *,
    credentials: Credentials | Fetch | None = None,
    tls: TlsSettings | None = None,
    client: ClientSettings | None = None,
    trace: TraceSettings | None = None,
    namespace: str = "",
) -> "Connection":
    """Return a connection as `sprocket.connect`, to be used with `with`, or with `start` and `close`."""
    return Connection(
        aio.connect(namesrv, credentials=credentials, tls=tls, client=client, trace=trace, namespace=namespace)
    )


class Connection(Blocking[aio.Connection]):
    """Producers, consumers and the administration of one cluster; any number of threads may use it::

    with sync.connect("127.0.0.1:9876") as mq:
        mq.producer().send(Message("Flights", b"JFK-LAX"))
        for message in mq.consumer("readers", "Flights"):
            message.ack()
    """

    @property
    def namespace(self) -> str:
        """Namespace of all names of topics and groups; the empty text without one."""
        return self._aio.namespace

    @property
    def admin(self) -> Admin:
        """Requests of an operator: ``mq.admin.topic_list()``; see `Admin`."""
        return Admin._part(self._aio.admin)

    @property
    def schedules(self) -> Schedules:
        """Requests about schedules: list, get, pause, resume, delete, trigger."""
        return Schedules(self._aio.schedules)

    def schedule(
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
        """Let a broker send a message again and again, as `sprocket.Connection.schedule`."""
        return self._call(
            self._aio.schedule(
                name, topic=topic, body=body, cron=cron, every=every, tz=tz, tags=tags, keys=keys,
                properties=properties, delay=delay, catch_up=catch_up, max_catch_up=max_catch_up, jitter=jitter,
                replace=replace,
            )
        )  # fmt: skip

    def producer(
        self,
        group: str = aio.DEFAULT_GROUP,
        *,
        settings: SendSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> Producer:
        """Return the producer of `group`, which needs no `with`."""
        return Producer._part(self._aio.producer(group, settings=settings, trace=trace))

    def transaction_producer(
        self,
        group: str,
        *,
        checker: Checker,
        check_threads: int = 4,
        settings: SendSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> TransactionProducer:
        """Return a producer of transactional messages, to be used with `with`; `checker` may block."""
        return TransactionProducer._part(
            self._aio.transaction_producer(
                group, checker=checking(checker), check_threads=check_threads, settings=settings, trace=trace
            )
        )

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
        return Consumer._part(
            self._aio.consumer(
                group, topics, model=model, consume_from=consume_from, max_in_flight=max_in_flight, listener=listener,
                strategy=strategy, settings=settings, trace=trace,
            )
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
        """Return a consumer that handles each queue in order."""
        return OrderlyConsumer._part(
            self._aio.orderly_consumer(
                group, topics, consume_from=consume_from, listener=listener, strategy=strategy, settings=settings,
                trace=trace,
            )
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
        """Return a consumer that pops single messages."""
        return SimpleConsumer._part(
            self._aio.simple_consumer(
                group, topics, consume_from=consume_from, ordered=ordered, settings=settings, trace=trace
            )
        )

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
        """Return a consumer of lite topics of `topic`; `on_lost` is called in a thread."""
        return LiteConsumer._part(
            self._aio.lite_consumer(
                group, topic, lite_topics, start=start, on_lost=in_thread(on_lost), settings=settings, trace=trace
            )
        )

    def session(
        self,
        id: str,
        *,
        topic: str = SESSION_TOPIC,
        group: str = SESSION_GROUP,
        peer: str | None = None,
        start: LiteStart | None = None,
    ) -> Session:
        """Return the session `id`, to be used with `with`: an ordered channel, which is a lite topic of `topic`."""
        return Session._part(self._aio.session(id, topic=topic, group=group, peer=peer, start=start))

    def table(
        self, name: str, type: type[T], *, serializer: Serializer[T] | None = None, group: str = TABLE_GROUP
    ) -> Table[T]:
        """Return the table of the compacted topic `name`, to be used with `with`: the last value of each key."""
        return Table._part(self._aio.table(name, type, serializer=serializer, group=group))

    def topic(
        self,
        name: str,
        type: type[T],
        *,
        serializer: Serializer[T] | None = None,
        undecodable: Undecodable = Undecodable.DEAD_LETTER,
        group: str = aio.DEFAULT_GROUP,
        settings: SendSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> Topic[T]:
        """Return a topic whose messages are values of `type`; `group`, `settings` and `trace` are its producer's."""
        return Topic(
            self._aio.topic(
                name, type, serializer=serializer, undecodable=undecodable, group=group, settings=settings, trace=trace
            )
        )

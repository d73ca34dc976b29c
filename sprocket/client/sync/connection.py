"""The blocking form of `sprocket.connect`."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from sprocket.client import connect as aio
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.lite.start import LiteStart
from sprocket.client.lite_consumer import Lost
from sprocket.client.pop.pop_settings import PopSettings
from sprocket.client.send.send_request import SendSettings
from sprocket.client.sync.admin import Admin
from sprocket.client.sync.blocking import Blocking, blocking, part
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

    schedule = blocking(aio.Connection.schedule)
    producer = part(aio.Connection.producer, Producer)
    consumer = part(aio.Connection.consumer, Consumer)
    orderly_consumer = part(aio.Connection.orderly_consumer, OrderlyConsumer)
    simple_consumer = part(aio.Connection.simple_consumer, SimpleConsumer)
    session = part(aio.Connection.session, Session)

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

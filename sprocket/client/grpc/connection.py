"""What `sprocket.connect` returns for ``grpc://``: parts that speak to a proxy."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.connect import DEFAULT_GROUP, Connection
from sprocket.client.consume.consume_settings import ConsumeSettings, MessageModel
from sprocket.client.consume.subscription import Topics
from sprocket.client.consumer import Consumer
from sprocket.client.grpc.lite_consumer import GrpcLiteConsumer
from sprocket.client.grpc.producer import GrpcLink, GrpcProducer
from sprocket.client.grpc.push_consumer import GrpcConsumer
from sprocket.client.grpc.refused import needs_name_server, not_over_grpc
from sprocket.client.grpc.simple_consumer import GrpcSimpleConsumer
from sprocket.client.grpc.transaction import GrpcTransactionProducer
from sprocket.client.lite.start import LiteStart
from sprocket.client.lite_consumer import LiteConsumer, Lost
from sprocket.client.orderly_consumer import OrderlyConsumer, OrderlySettings
from sprocket.client.pop.pop_settings import PopSettings
from sprocket.client.producer import Producer
from sprocket.client.rebalance.allocation import AllocateMessageQueueStrategy
from sprocket.client.rebalance.listener import ConsumerListener
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.send.producer_link import ProducerLink
from sprocket.client.send.send_request import SendSettings
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.transaction import Checker, TransactionProducer
from sprocket.client.typed.serializers import Serializer
from sprocket.client.typed.table import TABLE_GROUP, Table

T = TypeVar("T")
_OFFSET = "set the group's offset with `mqadmin resetOffsetByTime`"
_ORDER = "create the group with consumeMessageOrderly; its consumers then receive in order"


class GrpcConnection(Connection):
    """Connection to proxies."""

    def _new_link(self) -> ProducerLink:
        return GrpcLink(self._settings)

    def _new_admin(self) -> AdminClient | None:
        return None

    def _new_producer(self, group: str, settings: SendSettings | None, trace: TraceSettings | None) -> Producer:
        return GrpcProducer(group, settings=settings, link=self._link)

    def producer(
        self, group: str = DEFAULT_GROUP, *, settings: SendSettings | None = None, trace: TraceSettings | None = None
    ) -> Producer:
        """Return the producer of `group`.  Raises IllegalArgument for a trace."""
        _refuse(trace)
        return super().producer(group, settings=settings)

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
        """Return a consumer that the proxy feeds.  Raises IllegalArgument for what the protocol lacks."""
        if model is not MessageModel.CLUSTERING:
            raise needs_name_server("broadcasting")
        if consume_from is not ConsumeFrom.LAST:
            raise not_over_grpc("start at another message than the next", _OFFSET)
        _refuse(trace)
        if listener is not None or strategy is not None:
            raise needs_name_server("queues of a member, so no listener and no strategy")
        return GrpcConsumer(
            group, topics, client=self._settings, max_in_flight=max_in_flight, settings=settings, owner=self._parts
        )

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
        """Raise IllegalArgument: order is a property of the group, and `consumer` keeps it."""
        raise not_over_grpc("order by the consumer", f"{_ORDER}; use `consumer`")

    def table(
        self, name: str, type: type[T], *, serializer: Serializer[T] | None = None, group: str = TABLE_GROUP
    ) -> Table[T]:
        """Raises IllegalArgument: over gRPC no client reads all queues of a topic from their beginning."""
        raise needs_name_server("tables")

    def transaction_producer(
        self,
        group: str,
        *,
        checker: Checker,
        check_threads: int = 4,
        settings: SendSettings | None = None,
        trace: TraceSettings | None = None,
    ) -> TransactionProducer:
        """Return a producer of transactional messages; start it with `async with`."""
        _refuse(trace)
        producer = GrpcTransactionProducer(
            group, checker=checker, check_threads=check_threads, settings=settings, client=self._settings
        )
        self._separate.append(producer)
        return producer

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
        """Return a consumer that receives single messages.  Raises IllegalArgument for what the proxy decides."""
        _refuse(trace)
        if consume_from is not ConsumeFrom.LAST:
            raise not_over_grpc("start at the first message", _OFFSET)
        if ordered:
            raise not_over_grpc("order by the consumer", _ORDER)
        return GrpcSimpleConsumer(group, topics, settings=settings, client=self._settings, owner=self._parts)

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
        """Return a consumer of lite topics of `topic`."""
        _refuse(trace)
        return GrpcLiteConsumer(
            group, topic, lite_topics, start=start, on_lost=on_lost, settings=settings, client=self._settings,
            owner=self._parts,
        )  # fmt: skip


def _refuse(trace: TraceSettings | None) -> None:
    if trace is not None:
        raise needs_name_server("message trace")

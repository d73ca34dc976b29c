"""What `sprocket.connect` returns for ``grpc://``: parts that speak to a proxy."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.connect import DEFAULT_GROUP, Connection
from sprocket.client.consume.consume_settings import MessageModel
from sprocket.client.consume.subscription import Topics
from sprocket.client.consumer import Consumer
from sprocket.client.errors import IllegalArgument
from sprocket.client.grpc.lite_consumer import GrpcLiteConsumer
from sprocket.client.grpc.producer import GrpcLink, GrpcProducer
from sprocket.client.grpc.push_consumer import GrpcConsumer
from sprocket.client.grpc.refused import needs_name_server, not_over_grpc
from sprocket.client.grpc.simple_consumer import GrpcSimpleConsumer
from sprocket.client.grpc.transaction import GrpcTransactionProducer
from sprocket.client.lite_consumer import LiteConsumer
from sprocket.client.orderly_consumer import OrderlyConsumer
from sprocket.client.producer import Producer
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.send.producer_link import ProducerLink
from sprocket.client.send.send_request import SendSettings
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.transaction import TransactionProducer
from sprocket.client.typed.table import Table

_ORDER: Final = "create the group with consumeMessageOrderly; its consumers then receive in order"
_QUEUES: Final = needs_name_server("queues of a member, so no listener and no strategy")
# Options of parts that the protocol lacks: the default, which is allowed, and the error for any other value.
_LACKING: Final[Mapping[str, tuple[object, IllegalArgument]]] = {
    "model": (MessageModel.CLUSTERING, needs_name_server("broadcasting")),
    "consume_from": (
        ConsumeFrom.LAST,
        not_over_grpc(
            "start at another message than the next", "set the group's offset with `mqadmin resetOffsetByTime`"
        ),
    ),
    "trace": (None, needs_name_server("message trace")),
    "listener": (None, _QUEUES),
    "strategy": (None, _QUEUES),
    "ordered": (False, not_over_grpc("order by the consumer", _ORDER)),
}


def _kept(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a part without those of `_LACKING`.  Raises IllegalArgument if one of these is set."""
    for name, (default, error) in _LACKING.items():
        if options.pop(name, default) is not default:
            raise IllegalArgument(str(error))
    return options


class GrpcConnection(Connection):
    """Connection to proxies.  Its parts take the options of those of `Connection`, but what the protocol lacks."""

    def _new_link(self) -> ProducerLink:
        return GrpcLink(self._settings)

    def _new_admin(self) -> AdminClient | None:
        return None

    def _new_producer(self, group: str, settings: SendSettings | None, trace: TraceSettings | None) -> Producer:
        return GrpcProducer(group, settings=settings, link=self._link)

    def producer(self, group: str = DEFAULT_GROUP, **options: Any) -> Producer:
        """Return the producer of `group`."""
        return super().producer(group, **_kept(options))

    def consumer(self, group: str, topics: Topics = (), **options: Any) -> Consumer:
        """Return a consumer that the proxy feeds."""
        return GrpcConsumer(group, topics, client=self._settings, owner=self._parts, **_kept(options))

    def orderly_consumer(self, group: str, topics: Topics = (), **options: Any) -> OrderlyConsumer:
        """Raise IllegalArgument: order is a property of the group, and `consumer` keeps it."""
        raise not_over_grpc("order by the consumer", f"{_ORDER}; use `consumer`")

    def table(self, name: str, type: Any, **options: Any) -> Table[Any]:
        """Raises IllegalArgument: over gRPC no client reads all queues of a topic from their beginning."""
        raise needs_name_server("tables")

    def transaction_producer(self, group: str, **options: Any) -> TransactionProducer:
        """Return a producer of transactional messages; start it with `async with`."""
        producer = GrpcTransactionProducer(group, client=self._settings, **_kept(options))
        self._separate.append(producer)
        return producer

    def simple_consumer(self, group: str, topics: Topics, **options: Any) -> SimpleConsumer:
        """Return a consumer that receives single messages."""
        return GrpcSimpleConsumer(group, topics, client=self._settings, owner=self._parts, **_kept(options))

    def lite_consumer(
        self, group: str, topic: str, lite_topics: Iterable[str] | str = (), **options: Any
    ) -> LiteConsumer:
        """Return a consumer of lite topics of `topic`."""
        return GrpcLiteConsumer(group, topic, lite_topics, client=self._settings, owner=self._parts, **_kept(options))

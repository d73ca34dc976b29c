"""QueryRoute and QueryAssignment: which queues a topic has, and the address of the proxy for all of them.

Source: RocketMQ 5.3.3, `RouteActivity`.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from proxy.brokers.brokers import Brokers
from proxy.brokers.metadata import Metadata
from proxy.config import ProxyConfig
from proxy.listeners import endpoints_for
from proxy.server.call import Call
from proxy.status import OK, status
from proxy.validation import group_of, topic_of
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.message.lite_groups import lite_bind_topic

_ACCEPTED: Final = {
    "NORMAL": [wire.NORMAL],
    "FIFO": [wire.FIFO],
    "DELAY": [wire.DELAY],
    "TRANSACTION": [wire.TRANSACTION],
    "PRIORITY": [wire.PRIORITY],
    "LITE": [wire.LITE],
    "MIXED": [wire.NORMAL, wire.FIFO, wire.DELAY, wire.TRANSACTION],
}
# Any queue of a broker.
_ANY_QUEUE: Final = -1


class RouteActivity:
    """Answers about routes."""

    def __init__(self, brokers: Brokers, metadata: Metadata, config: ProxyConfig) -> None:
        self._brokers = brokers
        self._metadata = metadata
        self._config = config

    async def query_route(self, call: Call, request: wire.QueryRouteRequest) -> wire.QueryRouteResponse:
        """Return every queue of a topic, with the types of messages that it takes.

        Those of a static topic are the physical queues that brokers have, of which each writes those that it leads.
        """
        topic = topic_of(request.topic)
        route = await self._brokers.route(topic)
        accepted = _ACCEPTED.get(await self._metadata.message_type(topic), [wire.MESSAGE_TYPE_UNSPECIFIED])
        endpoints = self._endpoints(call, request.endpoints)
        response = wire.QueryRouteResponse(status=OK)
        reads = Counter(queue.broker_name for queue in route.popped)
        writes = Counter(route.broker_of(queue) for queue in route.publish)
        for broker_name, members in sorted(route.broker_addresses.items()):
            permissions = list(_permissions(reads[broker_name], writes[broker_name]))
            for broker_id in sorted(members):
                broker = wire.Broker(name=broker_name, id=broker_id, endpoints=endpoints)
                response.message_queues.extend(
                    wire.MessageQueue(
                        topic=request.topic, id=number, permission=permission, broker=broker,
                        accept_message_types=accepted,
                    )
                    for number, permission in enumerate(permissions)
                )  # fmt: skip
        return response

    async def query_assignment(self, call: Call, request: wire.QueryAssignmentRequest) -> wire.QueryAssignmentResponse:
        """Return what a consumer receives from: every broker, or every queue if its group is ordered.

        Lite topics lie in no queue of their parent, so their consumers, ordered too, ask brokers.
        """
        topic, group_name = topic_of(request.topic), group_of(request.group)
        route = await self._brokers.route(topic)
        group = await self._metadata.group(group_name)
        is_by_queue = group is not None and group.consume_message_orderly and lite_bind_topic(group.attributes) is None
        endpoints = self._endpoints(call, request.endpoints)
        counts = Counter(queue.broker_name for queue in route.popped)
        written = {route.broker_of(queue) for queue in route.publish}
        response = wire.QueryAssignmentResponse(status=OK)
        for broker_name, count in sorted(counts.items()):
            if MASTER_ID not in route.broker_addresses.get(broker_name, {}):
                continue
            broker = wire.Broker(name=broker_name, id=MASTER_ID, endpoints=endpoints)
            permission = wire.READ_WRITE if broker_name in written else wire.READ
            queue_ids = range(count) if is_by_queue else [_ANY_QUEUE]
            for queue_id in queue_ids:
                queue = wire.MessageQueue(topic=request.topic, id=queue_id, permission=permission, broker=broker)
                response.assignments.add().message_queue.CopyFrom(queue)
        if not response.assignments:
            return wire.QueryAssignmentResponse(status=status(wire.FORBIDDEN, "no readable queue"))
        return response

    def _endpoints(self, call: Call, asked: wire.Endpoints) -> wire.Endpoints:
        use_asked_port = self._config.use_endpoint_port_from_request
        return endpoints_for(asked, call.listener, use_asked_port=use_asked_port)


def _permissions(reads: int, writes: int) -> "Iterator[wire.Permission]":
    """Yield the permission of each queue of a broker, in the order that RocketMQ numbers them: read-only ones first."""
    both = min(reads, writes)
    yield from [wire.READ] * (reads - both)
    yield from [wire.WRITE] * (writes - both)
    yield from [wire.READ_WRITE] * both

"""Permissions that a call needs; pure.

Source: RocketMQ 5.3.3, `DefaultAuthorizationContextBuilder.build(Metadata, GeneratedMessageV3)`.  Stricter here: a
change of an invisible time needs the topic too, and methods that RocketMQ does not serve need what they touch.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from acl.access_request import Needed
from acl.auth.model import Action, Resource
from acl.auth.requests import topic_or_group
from proxy.convert.client_types import CONSUMER_TYPES
from proxy.convert.resources import full_name
from proxy.status import Refusal
from sprocket.grpc_wire import messaging_pb2 as wire

_PUB: Final = (Action.PUB,)
_SUB: Final = (Action.SUB,)
_ROUTE: Final = (Action.PUB, Action.SUB)


def needs(request: Any) -> list[Needed]:
    """Return everything that a request needs; nothing if anybody who signs may send it.  Raises Refusal."""
    rule = _RULES.get(type(request).__name__)
    if rule is None:
        # A method without a rule is one that nobody serves.
        return []
    return list(rule(request))


def _topic(resource: Any, actions: tuple[Action, ...]) -> Needed:
    if not resource.name.strip():
        raise Refusal(wire.UNAUTHORIZED, "topic is null.")
    return topic_or_group(full_name(resource), actions)


def _group(resource: Any) -> Needed:
    if not resource.name.strip():
        raise Refusal(wire.UNAUTHORIZED, "group is null.")
    return Needed(Resource.group(full_name(resource)), _SUB)


def _send(request: Any) -> Iterator[Needed]:
    if not request.messages:
        raise Refusal(wire.UNAUTHORIZED, "message is null.")
    yield _topic(request.messages[0].topic, _PUB)


def _published(request: Any) -> Iterator[Needed]:
    yield _topic(request.topic, _PUB)


def _heartbeat(request: Any) -> Iterator[Needed]:
    if request.client_type in CONSUMER_TYPES:
        yield _group(request.group)


def _consumed(request: Any) -> Iterator[Needed]:
    yield _group(request.group)
    yield _topic(request.topic, _SUB)


def _consumed_queue(request: Any) -> Iterator[Needed]:
    yield _group(request.group)
    yield _topic(request.message_queue.topic, _SUB)


def _read_queue(request: Any) -> Iterator[Needed]:
    yield _topic(request.message_queue.topic, _SUB)


def _termination(request: Any) -> Iterator[Needed]:
    if request.group.name.strip():
        yield _group(request.group)


def _route(request: Any) -> Iterator[Needed]:
    yield _topic(request.topic, _ROUTE)


def _telemetry(request: Any) -> Iterator[Needed]:
    if request.WhichOneof("command") != "settings":
        return
    settings = request.settings
    kind = settings.WhichOneof("pub_sub")
    if kind == "publishing":
        yield from (_topic(topic, _PUB) for topic in settings.publishing.topics)
    elif kind == "subscription":
        yield _group(settings.subscription.group)
        yield from (_topic(entry.topic, _SUB) for entry in settings.subscription.subscriptions)


_RULES: Final[dict[str, Callable[[Any], Iterator[Needed]]]] = {
    "SendMessageRequest": _send,
    "RecallMessageRequest": _published,
    "EndTransactionRequest": _published,
    "HeartbeatRequest": _heartbeat,
    "ReceiveMessageRequest": _consumed_queue,
    "AckMessageRequest": _consumed,
    "ForwardMessageToDeadLetterQueueRequest": _consumed,
    "ChangeInvisibleDurationRequest": _consumed,
    "NotifyClientTerminationRequest": _termination,
    "QueryRouteRequest": _route,
    "QueryAssignmentRequest": _consumed,
    "TelemetryCommand": _telemetry,
    "SyncLiteSubscriptionRequest": _consumed,
    "PullMessageRequest": _consumed_queue,
    "UpdateOffsetRequest": _consumed_queue,
    "GetOffsetRequest": _consumed_queue,
    "QueryOffsetRequest": _read_queue,
}

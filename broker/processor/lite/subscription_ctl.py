"""LITE_SUBSCRIPTION_CTL: changes of the lite topics that clients subscribe.

Source: RocketMQ 5.5.1, `LiteSubscriptionCtlProcessor`.  As there a version in a change is not looked at: the changes of
a client come over one connection, in their order.
"""

from collections.abc import Callable
from typing import Any, Final

from broker.lite.admission import LiteAdmission
from broker.lite.subscriptions import ClientKey, LiteSubscriptions
from sprocket.common.errors import RequestError
from sprocket.remoting.bodies.lite import LiteSubscriptionAction, LiteSubscriptionDTO
from sprocket.remoting.bodies.requests import read_lite_subscriptions
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.lite import LiteSubscriptionCtlRequestHeader
from sprocket.remoting.message.lite_topics import is_legal_lite_topic, lite_queue

# What the broker keeps of a client must be small.  RocketMQ has no limit.
_MAX_CLIENT_ID_CHARS: Final = 1024


class LiteSubscriptionProcessor:
    """Handler of the request.  Lives in the event loop's thread."""

    def __init__(
        self, admission: LiteAdmission, subscriptions: LiteSubscriptions, name_of: Callable[[str], str]
    ) -> None:
        """`name_of` returns the string that other tables have of a light queue's name: it takes 100 bytes."""
        self._admission = admission
        self._subscriptions = subscriptions
        self._name_of = name_of

    def change(self, request: Request[LiteSubscriptionCtlRequestHeader]) -> Response:
        """Apply the changes in their order; those before one that is refused stay.  Raises RequestError."""
        changes = read_lite_subscriptions(request.body).subscription_set
        if not changes:
            remark = "LiteSubscriptionCtlRequestBody is empty." if request.body else "Request body is null."
            raise RequestError(ResponseCode.ILLEGAL_OPERATION, remark)
        for change in changes:
            if change.client_id.strip() and change.group.strip() and change.topic.strip():
                self._apply(request.channel, change)
        return Response()

    def _apply(self, channel: Any, change: LiteSubscriptionDTO) -> None:
        if len(change.client_id) > _MAX_CLIENT_ID_CHARS:
            remark = f"a clientId has {len(change.client_id)} characters, at most {_MAX_CLIENT_ID_CHARS} are allowed"
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark)
        key, action = ClientKey(change.group, change.client_id), LiteSubscriptionAction
        if change.action is action.COMPLETE_REMOVE:
            self._subscriptions.leave(key)
            return
        how = self._admission.check_subscriber(change.topic, change.group)
        queues = [self._name_of(queue) for queue in _queues(change)]
        match change.action:
            case action.PARTIAL_ADD:
                self._subscriptions.add(key, how, channel, queues, change.offset_option)
            case action.PARTIAL_REMOVE:
                self._subscriptions.remove(key, how, queues)
            case action.COMPLETE_ADD:
                self._subscriptions.replace(key, how, channel, queues)


def _queues(change: LiteSubscriptionDTO) -> list[str]:
    names = change.lite_topic_set or []
    for name in names:
        if not is_legal_lite_topic(name):
            remark = f"lite topic {name[:60]!r}: allowed are up to 240 letters, digits, hyphens and underscores"
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark)
    return [lite_queue(change.topic, name) for name in names]

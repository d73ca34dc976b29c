"""Refusals of a slave, and of a master that waits for its slaves.

A slave refuses what would write to its log or change what its master decides.  A master refuses reads while it waits
until a slave has what it found in its log.

RocketMQ's slave refuses sends, ends of transactions, recalls and resets in the same words, whether it acts or not.
This one is stricter: unless it acts, it also refuses changes of topics and groups, which its master's tables would undo
within a minute, and pops, whose checkpoints it cannot write.
Source: RocketMQ 5.3.3, `SendMessageProcessor.rejectRequest`, `EndTransactionProcessor`, `RecallMessageProcessor`,
`AdminBrokerProcessor.resetOffsetInner`, `validateSlave`.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from broker.config.broker_config import BrokerRole
from broker.role import Role
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.routes import Answer, Overload, Route, RouteTable

_BUSY: Final = Response(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")
_READ_ONLY: Final = Response(
    ResponseCode.SYSTEM_ERROR,
    "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
)
_NO_POPS: Final = Response(ResponseCode.SERVICE_NOT_AVAILABLE, "a slave serves no pops: pop from its master")
_NO_RESET: Final = Response(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")

_ALWAYS: Final[dict[int, Response]] = {
    RequestCode.SEND_MESSAGE: _BUSY,
    RequestCode.SEND_MESSAGE_V2: _BUSY,
    RequestCode.SEND_BATCH_MESSAGE: _BUSY,
    RequestCode.CONSUMER_SEND_MSG_BACK: _BUSY,
    RequestCode.END_TRANSACTION: Response(ResponseCode.SLAVE_NOT_AVAILABLE),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: Response(ResponseCode.SLAVE_NOT_AVAILABLE),
    RequestCode.RECALL_MESSAGE: Response(
        ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available"
    ),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _NO_RESET,
}
_UNLESS_ACTING: Final[dict[int, Response]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: _READ_ONLY,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _READ_ONLY,
    RequestCode.DELETE_TOPIC_IN_BROKER: _READ_ONLY,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _READ_ONLY,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _READ_ONLY,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _READ_ONLY,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _READ_ONLY,
    RequestCode.POP_MESSAGE: _NO_POPS,
    RequestCode.ACK_MESSAGE: _NO_POPS,
    RequestCode.BATCH_ACK_MESSAGE: _NO_POPS,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _NO_POPS,
}


_HIDDEN: Final = Response(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "the master waits until a slave has what is in its log, see haTailRecoveryWait and minInSyncReplicas",
)
_READS: Final = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
)
_NO_OFFSETS: Final = Response(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "the master's store is empty, and it waits for a slave that may have its data, see haTailRecoveryWait",
)
_OFFSETS: Final = (
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
)


def gated_table(role: Role, routes: Iterable[Route], *, overload: Overload | None = None) -> RouteTable:
    """Return the table of `routes` with the gate of a slave, or of a master that may wait for its slaves."""
    if role.is_slave:
        return RouteTable([_gated(route, role) for route in routes], overload=overload)
    if role.kind is BrokerRole.SYNC_MASTER:
        return RouteTable([_gated_while_hiding(route, role) for route in routes], overload=overload)
    return RouteTable(routes, overload=overload)


def _gated_while_hiding(route: Route, role: Role) -> Route:
    if route.code in _OFFSETS:
        return _gated_unless(route, lambda: role.knows_offsets, _NO_OFFSETS)
    return _gated_unless(route, lambda: role.shows_log, _HIDDEN) if route.code in _READS else route


def _gated(route: Route, role: Role) -> Route:
    always, unless_acting = _ALWAYS.get(route.code), _UNLESS_ACTING.get(route.code)
    if always is not None:
        return replace(route, handle=lambda _: always, batch=None)
    return route if unless_acting is None else _gated_unless(route, lambda: role.is_acting, unless_acting)


def _gated_unless(route: Route, is_open: Callable[[], bool], refusal: Response) -> Route:
    serve, serve_all = route.handle, route.batch

    def handle(request: Request[Any]) -> Answer:
        assert serve is not None
        return serve(request) if is_open() else refusal

    def batch(run: list[Request[Any]]) -> None:
        assert serve_all is not None
        if is_open():
            serve_all(run)
            return
        for request in run:
            request.channel.reply(request, refusal)

    return replace(route, handle=None if serve is None else handle, batch=None if serve_all is None else batch)

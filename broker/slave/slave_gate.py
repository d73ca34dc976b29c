"""Refusals of a slave, and of a master that waits for its slaves.

A slave refuses what would write to its log or change what its master decides.  A master refuses reads while it waits
until a slave has what it found in its log.

RocketMQ's slave refuses sends, ends of transactions, recalls and resets in the same words, whether it acts or not.
This one is stricter: unless it acts, it also refuses changes of topics and groups, which its master's tables would undo
within a minute, and pops, whose checkpoints it cannot write.  A master that controllers may have replaced refuses the
same.
Source: RocketMQ 5.3.3, `SendMessageProcessor.rejectRequest`, `EndTransactionProcessor`, `RecallMessageProcessor`,
`AdminBrokerProcessor.resetOffsetInner`, `validateSlave`.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from broker.config.broker_config import BrokerRole
from broker.role import Role
from sprocket.common.errors import NoLease
from sprocket.common.refusal_reasons import Reason
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.refusals import Refusal, Refusals, refusal_of
from sprocket.remoting.routes import Overload, Route, RouteTable
from sprocket.remoting.serving.rpc_latency import RpcLatency


def _on_slave(code: int, remark: str | None = None) -> Refusal:
    return Refusal(code, remark, reason=Reason.SLAVE)


_BUSY: Final = _on_slave(ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")
_READ_ONLY: Final = _on_slave(
    ResponseCode.SYSTEM_ERROR,
    "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
)
_NO_POPS: Final = _on_slave(ResponseCode.SERVICE_NOT_AVAILABLE, "a slave serves no pops: pop from its master")
_NO_RESET: Final = _on_slave(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")

_ALWAYS: Final[dict[int, Refusal]] = {
    RequestCode.SEND_MESSAGE: _BUSY,
    RequestCode.SEND_MESSAGE_V2: _BUSY,
    RequestCode.SEND_BATCH_MESSAGE: _BUSY,
    RequestCode.CONSUMER_SEND_MSG_BACK: _BUSY,
    RequestCode.TRIGGER_SCHEDULE: _READ_ONLY,
    RequestCode.END_TRANSACTION: _on_slave(ResponseCode.SLAVE_NOT_AVAILABLE),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _on_slave(ResponseCode.SLAVE_NOT_AVAILABLE),
    RequestCode.RECALL_MESSAGE: _on_slave(
        ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed, broker service not available"
    ),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _NO_RESET,
}
_UNLESS_ACTING: Final[dict[int, Refusal]] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: _READ_ONLY,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: _READ_ONLY,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _READ_ONLY,
    RequestCode.DELETE_TOPIC_IN_BROKER: _READ_ONLY,
    RequestCode.DELETE_TOPIC_IN_BROKER_LIST: _READ_ONLY,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _READ_ONLY,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _READ_ONLY,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _READ_ONLY,
    RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST: _READ_ONLY,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _READ_ONLY,
    RequestCode.SET_QUOTA: _READ_ONLY,
    RequestCode.DELETE_QUOTA: _READ_ONLY,
    RequestCode.SET_NAMESPACE: _READ_ONLY,
    RequestCode.DELETE_NAMESPACE: _READ_ONLY,
    RequestCode.SET_SCHEDULE: _READ_ONLY,
    RequestCode.DELETE_SCHEDULE: _READ_ONLY,
    RequestCode.PAUSE_SCHEDULE: _READ_ONLY,
    RequestCode.POP_MESSAGE: _NO_POPS,
    RequestCode.POP_LITE_MESSAGE: _NO_POPS,
    RequestCode.ACK_MESSAGE: _NO_POPS,
    RequestCode.BATCH_ACK_MESSAGE: _NO_POPS,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _NO_POPS,
}


_HIDDEN: Final = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "the master waits until a slave has what is in its log, see haTailRecoveryWait and minInSyncReplicas",
    reason=Reason.MASTER_WAITS,
)
_READS: Final = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.POP_MESSAGE,
    RequestCode.POP_LITE_MESSAGE,
    RequestCode.PEEK_MESSAGE,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
)
_NO_OFFSETS: Final = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "the master's store is empty, and it waits for a slave that may have its data, see haTailRecoveryWait",
    reason=Reason.MASTER_WAITS,
)
_OFFSETS: Final = (
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
)


# `SendProcessor` looks at the lease once per batch.
_SENDS: Final = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
# A second request for the same user is refused, so the first one must not create a user that it cannot acknowledge.
# Other changes of accounts take effect also without a lease: a revoked right is gone at once.
_NEED_LEASE: Final = {*_ALWAYS, *_UNLESS_ACTING, RequestCode.AUTH_CREATE_USER} - _SENDS


def gated_table(
    role: Role,
    routes: Iterable[Route],
    *,
    overload: Overload | None = None,
    refusals: Refusals | None = None,
    holds_lease: Callable[[], bool] | None = None,
    latency: RpcLatency | None = None,
) -> RouteTable:
    """Return the table of `routes` with the gate of a slave, or of a master that may wait for its slaves.

    A master with `holds_lease` refuses changes while it has no lease.
    """
    if role.is_slave:
        routes = [_gated(route, role) for route in routes]
    elif role.kind is BrokerRole.SYNC_MASTER:
        routes = [_gated_while_hiding(route, role) for route in routes]
    if holds_lease is not None and not role.is_slave:
        routes = [_leased(route, holds_lease) for route in routes]
    return RouteTable(routes, overload=overload, refusals=refusals, latency=latency)


def _leased(route: Route, holds_lease: Callable[[], bool]) -> Route:
    if route.code not in _NEED_LEASE:
        return route

    def without_lease(_: Request[Any]) -> Refusal | None:
        return None if holds_lease() else refusal_of(NoLease())

    return replace(route, checks=(without_lease, *route.checks))


def _gated_while_hiding(route: Route, role: Role) -> Route:
    def no_offsets(_: Request[Any]) -> Refusal | None:
        return None if role.knows_offsets else _NO_OFFSETS

    def hidden(_: Request[Any]) -> Refusal | None:
        return None if role.shows_log else _HIDDEN

    if route.code in _OFFSETS:
        return replace(route, checks=(no_offsets, *route.checks))
    return replace(route, checks=(hidden, *route.checks)) if route.code in _READS else route


def _gated(route: Route, role: Role) -> Route:
    always, unless_acting = _ALWAYS.get(route.code), _UNLESS_ACTING.get(route.code)
    if always is None and unless_acting is None:
        return route

    def not_on_slave(_: Request[Any]) -> Refusal | None:
        return None if always is None and role.is_acting else always or unless_acting

    return replace(route, checks=(not_on_slave, *route.checks))

"""EndTransaction, and the recovery of open transactions: brokers ask for their state, and clients are asked.

Source: RocketMQ 5.3.3, `EndTransactionActivity`, `TransactionProcessor`, `ProxyClientRemotingProcessor`,
`GrpcClientChannel.processCheckTransaction`, `ClusterTransactionService`.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from proxy.brokers.brokers import Brokers
from proxy.brokers.metadata import Metadata
from proxy.brokers.transaction_ids import TransactionId, parse_transaction_id
from proxy.clients.registry import Clients
from proxy.convert.outgoing import outgoing
from proxy.server.call import Call
from proxy.status import OK, Refusal
from proxy.validation import topic_of
from sprocket.client.errors import ConnectFailed
from sprocket.client.pull.record_decoder import decode_records
from sprocket.common import limits
from sprocket.common.errors import ProtocolError
from sprocket.common.logs.peer_lines import peer_lines
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.remoting.bodies.client import HeartbeatData, MessageQueue, ProducerData
from sprocket.remoting.channel import RemotingChannel
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.client import CheckTransactionStateRequestHeader
from sprocket.remoting.headers.send import EndTransactionRequestHeader
from sprocket.remoting.message import properties as names
from sprocket.remoting.message.record import SysFlag
from sprocket.remoting.routes import Action, Resource, Route, Traffic

logger = logging.getLogger(__name__)

_RESOLUTIONS: Final = {
    wire.COMMIT: int(SysFlag.TRANSACTION_COMMIT),
    wire.ROLLBACK: int(SysFlag.TRANSACTION_ROLLBACK),
}
_UNKNOWN: Final = 0


class TransactionActivity:
    """Ends of transactions."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def end_transaction(self, call: Call, request: wire.EndTransactionRequest) -> wire.EndTransactionResponse:
        """Commit a transaction or roll it back.  As in RocketMQ, the broker is told and does not answer."""
        topic = topic_of(request.topic)
        if not request.transaction_id.strip():
            raise Refusal(wire.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        transaction = parse_transaction_id(request.transaction_id)
        brokers = self._brokers
        if not await brokers.is_known(transaction.broker_name, topic):
            raise Refusal(wire.BAD_REQUEST, f"cannot find broker {transaction.broker_name}")
        header = EndTransactionRequestHeader(
            topic=topic,
            producer_group=topic,
            tran_state_table_offset=transaction.queue_offset,
            commit_log_offset=transaction.log_offset,
            commit_or_rollback=_RESOLUTIONS.get(request.resolution, _UNKNOWN),
            from_transaction_check=request.source == wire.SOURCE_SERVER_CHECK,
            msg_id=request.message_id,
            transaction_id=transaction.message_id,
        )
        address = brokers.instance.master_address(transaction.broker_name)
        if address is None:
            raise ConnectFailed(f"broker {transaction.broker_name} has no address")
        await brokers.instance.remoting.notify(address, RequestCode.END_TRANSACTION, header)
        return wire.EndTransactionResponse(status=OK)


class OrphanedTransactions:
    """Questions of brokers about open transactions, passed to a connected producer of the topic.

    `choose` returns a number below its argument, to choose a producer; `broker_of` the broker group of a connection.
    `passed` asks a remoting producer, and returns whether there is one.
    """

    def __init__(
        self,
        clients: Clients,
        choose: Callable[[int], int],
        broker_of: Callable[[RemotingChannel], str | None],
        now_ms: Callable[[], int],
        passed: Callable[[Request[CheckTransactionStateRequestHeader], str, str, str], bool],
    ) -> None:
        self._passed = passed
        self._clients = clients
        self._choose = choose
        self._broker_of = broker_of
        self._now_ms = now_ms

    def routes(self) -> list[Route]:
        """Return the routes of the requests that brokers send."""
        return [
            Route(
                RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequestHeader, self._asked,
                Resource.NONE, Action.NONE, Traffic.CLIENT,
            )
        ]  # fmt: skip

    def _asked(self, request: Request[CheckTransactionStateRequestHeader]) -> None:
        header = request.header
        try:
            messages = decode_records(request.body, MessageQueue("", "", 0))
        except ProtocolError as error:
            peer_lines.warning(logger, request.channel.peer, "event=check_unreadable reason=%r", str(error))
            return
        broker_name = header.broker_name or self._broker_of(request.channel)
        if len(messages) != 1 or not broker_name:
            host, port = request.channel.peer
            peer_lines.warning(logger, host, "event=check_unknown peer=%s:%d messages=%d", host, port, len(messages))
            return
        message = messages[0]
        group = message.properties.get(names.PRODUCER_GROUP, "")
        topic = message.properties.get(names.REAL_TOPIC) or message.topic
        if self._passed(request, group, topic, broker_name):
            return
        producers = self._clients.publishing(group)
        if not producers:
            peer_lines.info(logger, "", "event=check_without_producer group=%r", group)  # the broker asks again
            return
        message_id = header.transaction_id or message.message_id
        transaction = TransactionId(message_id, broker_name, header.tran_state_table_offset, header.commit_log_offset)
        command = wire.TelemetryCommand()
        command.recover_orphaned_transaction_command.message.CopyFrom(outgoing(message, topic, self._now_ms()))
        command.recover_orphaned_transaction_command.transaction_id = transaction.encode()
        stream = producers[self._choose(len(producers))].stream
        if stream is not None:
            stream.send(command)


class TransactionalProducers:
    """Topics of connected producers that take transactions: the producer groups by which brokers know the proxy.

    `of_remoting` returns the groups of remoting producers that send transactions.
    """

    def __init__(
        self, clients: Clients, metadata: Callable[[], Metadata], of_remoting: Callable[[], Iterable[str]]
    ) -> None:
        self._of_remoting = of_remoting
        self._clients = clients
        self._metadata = metadata
        self._groups: frozenset[str] = frozenset()
        self._just_gone: frozenset[str] = frozenset()

    async def look(self) -> tuple[bool, frozenset[str]]:
        """Look at the connected producers.  Return whether there is a new group, and the groups that are gone.

        A group that is gone must be unregistered: a broker closes connections whose producers stop their heartbeats.
        It is named twice, because a heartbeat that was on its way may come after the first time.
        """
        topics = {topic for client in self._clients for topic in client.topics}
        kinds = {topic: await self._metadata().message_type(topic) for topic in topics}
        groups = frozenset(topic for topic, kind in kinds.items() if kind in ("TRANSACTION", "MIXED"))
        groups |= frozenset(self._of_remoting())
        before, self._groups = self._groups, groups
        gone_before, self._just_gone = self._just_gone, before - groups
        return bool(groups - before), (self._just_gone | gone_before) - groups

    def heartbeat(self, client_id: str) -> HeartbeatData | None:
        """Return the heartbeat for brokers; None while there is no such producer."""
        if not self._groups:
            return None
        groups = sorted(self._groups)[: limits.MAX_HEARTBEAT_GROUPS]
        return HeartbeatData(client_id, [ProducerData(group) for group in groups])

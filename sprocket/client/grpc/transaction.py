"""Transactions over gRPC: EndTransaction, and answers to RecoverOrphanedTransactionCommand.

Source: RocketMQ 5.3.3, `EndTransactionActivity`, `GrpcClientChannel.processCheckTransaction`.
"""

import logging
from typing import Final

from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.errors import ClientError
from sprocket.client.grpc.convert import incoming
from sprocket.client.grpc.producer import GrpcLink, GrpcProducer
from sprocket.client.send.producer_link import ProducerLink
from sprocket.client.send_result import SendResult
from sprocket.client.transaction import TransactionProducer, TransactionState
from sprocket.common.clock import Clock
from sprocket.grpc_wire import messaging_pb2 as wire

logger = logging.getLogger(__name__)

_RESOLUTIONS: Final = {TransactionState.COMMIT: wire.COMMIT, TransactionState.ROLLBACK: wire.ROLLBACK}


class GrpcTransactionProducer(GrpcProducer, TransactionProducer):
    """Producer of transactions.  Questions about a topic arrive after its first message: the protocol has no groups."""

    def _new_link(self, client: ClientSettings, clock: Clock | None) -> ProducerLink:
        self._grpc_link = GrpcLink(client, self._recover)
        return self._grpc_link

    async def _tell_brokers(self) -> None:
        """Do nothing: the proxy learns the topics from the settings."""

    async def _end(self, topic: str, sent: SendResult, state: TransactionState) -> None:
        """Report the outcome; if the report is lost, the broker asks."""
        await self._report(topic, sent.message_id, sent.transaction_id or "", state, wire.SOURCE_CLIENT)

    async def _report(
        self,
        topic: str,
        message_id: str,
        transaction_id: str,
        state: TransactionState,
        source: "wire.TransactionSource",
    ) -> None:
        resolution = _RESOLUTIONS.get(state)
        if resolution is None:
            return  # the broker asks later
        request = wire.EndTransactionRequest(
            topic=self._grpc_link.grpc.resource(topic),
            message_id=message_id,
            transaction_id=transaction_id,
            resolution=resolution,
            source=source,
        )
        try:
            await self._grpc_link.grpc.ask("EndTransaction", request)
        except ClientError as error:
            logger.warning(
                "event=transaction_end_not_sent message_id=%s state=%s reason=%r", message_id, state.name, str(error)
            )

    def _recover(self, command: wire.RecoverOrphanedTransactionCommand) -> None:
        self._instance.spawn(self._answer(command))

    async def _answer(self, command: wire.RecoverOrphanedTransactionCommand) -> None:
        message = incoming(command.message, self._grpc_link.grpc.settings.namespace, "")
        state = await self._checked(message)
        source = wire.SOURCE_SERVER_CHECK
        await self._report(message.topic, message.message_id, command.transaction_id, state, source)

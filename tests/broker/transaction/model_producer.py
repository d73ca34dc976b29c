"""Producers of the transaction model: each a connection of its own, on which the broker asks."""

from dataclasses import dataclass
from typing import TypeAlias

from broker.message_id import decode_offset_message_id
from broker.server import Broker
from sprocket.client.pull.record_decoder import decode_records
from sprocket.remoting.bodies.client import HeartbeatData, MessageQueue, ProducerData
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.client import (
    CheckTransactionStateRequestHeader,
    HeartbeatRequestHeader,
    UnregisterClientRequestHeader,
)
from sprocket.remoting.headers.send import SendMessageResponseHeader
from sprocket.remoting.message.properties import encode
from sprocket.remoting.routes import Action, Resource, Route
from tests.broker.rig import TestClient
from tests.send_headers import send_header
from tests.waiting import until

Place: TypeAlias = tuple[int, int]  # offset in the half queue, offset in the log
_PREPARED = 4


@dataclass(frozen=True, order=True)
class Question:
    """A check that a producer received: the message, where it is stored, and the group."""

    key: str
    place: Place
    group: str
    topic: str
    queue_id: int


class Producer:
    """One producer of a group."""

    def __init__(self, address: str, client_id: str, group: str) -> None:
        self.address, self.client_id, self.group = address, client_id, group
        self._asked: list[Question] = []
        route = Route(
            RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequestHeader, self._take,
            Resource.NONE, Action.NONE,
        )  # fmt: skip
        self._remoting = RemotingClient([route])

    def _take(self, request: Request[CheckTransactionStateRequestHeader]) -> None:
        header = request.header
        (message,) = decode_records(request.body, MessageQueue("", header.broker_name or "", 0))
        assert decode_offset_message_id(header.offset_msg_id or "")[1] == header.commit_log_offset
        assert message.body.decode() == header.msg_id == header.transaction_id
        place = (header.tran_state_table_offset, header.commit_log_offset)
        self._asked.append(
            Question(message.body.decode(), place, self.group, message.topic, int(message.properties["REAL_QID"]))
        )

    def take(self) -> list[Question]:
        """What it was asked since the last call."""
        asked, self._asked = self._asked, []
        return asked

    async def heartbeat(self) -> None:
        body = dumps(HeartbeatData(self.client_id, [ProducerData(self.group)]))
        answer = await self._remoting.invoke(self.address, RequestCode.HEART_BEAT, HeartbeatRequestHeader(), body)
        assert answer.code == ResponseCode.SUCCESS

    async def leave(self, broker: Broker, *, is_orderly: bool) -> None:
        """Unregister and close, or close alone; the broker knows it on return."""
        if is_orderly:
            header = UnregisterClientRequestHeader(client_id=self.client_id, producer_group=self.group)
            await self._remoting.invoke(self.address, RequestCode.UNREGISTER_CLIENT, header)
        await self.close()
        await until(lambda: all(member.client_id != self.client_id for member in broker.producers.members(self.group)))

    async def close(self) -> None:
        await self._remoting.close()

    @staticmethod
    async def prepare(
        client: TestClient, key: str, group: str, topic: str, queue_id: int, *, born_ms: int, immunity: str | None
    ) -> Place:
        """Send a half message as a stock producer does; where it lies."""
        properties = {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": key}
        if immunity is not None:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = immunity
        header = send_header(
            topic, producer_group=group, queue_id=queue_id, sys_flag=_PREPARED, born_timestamp=born_ms,
            properties=encode(properties),
        )  # fmt: skip
        answer = await client.ask_well(RequestCode.SEND_MESSAGE_V2, header, key.encode())
        found = answer.header(SendMessageResponseHeader)
        return found.queue_offset, decode_offset_message_id(found.msg_id)[1]

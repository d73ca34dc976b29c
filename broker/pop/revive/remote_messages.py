"""Fetch of a message that another broker delivered, so that it is redelivered here.

Its checkpoint is here because a slave that acts for its master writes none to its own log.
Source: RocketMQ 5.3.3, `EscapeBridge.getMessageFromRemoteAsync`, `PopReviveService.getBizMessage`.
"""

from typing import Final

from broker.config.live_config import LiveConfig
from broker.pop.records import PopCheckPoint
from sprocket.client.connection.name_servers import NameServers
from sprocket.client.connection.topic_route import subscribe_address
from sprocket.common.clock import Clock
from sprocket.common.errors import ClientError
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.pull import PullMessageRequestHeader
from store.record.record import Record, decode

# `DEFAULT_PULL_TIMEOUT_MILLIS`
_TIMEOUT_S: Final = 10.0
_SUBSCRIPTION_IN_REQUEST: Final = 0x4
_GONE: Final = (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_NOT_FOUND)


class MessageGone(ClientError):
    """The broker answered that it no longer has the message."""


class RemoteMessages:
    """Fetch from other brokers.  Lives in the event loop's thread."""

    def __init__(self, config: LiveConfig, client: RemotingClient, clock: Clock) -> None:
        self._config = config
        self._client = client
        self._clock = clock
        addresses = config.broker.name_servers
        self._name_servers = NameServers(client, addresses) if addresses else None

    @property
    def is_enabled(self) -> bool:
        """Whether other brokers are asked: only where slaves act for masters."""
        return self._name_servers is not None and self._config.broker.enable_slave_acting_master

    async def find(self, checkpoint: PopCheckPoint, offset: int) -> Record:
        """Return the message at queue `offset`.  Raises MessageGone, and ClientError if it cannot be fetched now."""
        address = await self._address(checkpoint)
        header = PullMessageRequestHeader(
            consumer_group=checkpoint.c, topic=checkpoint.t, queue_id=checkpoint.q, queue_offset=offset,
            max_msg_nums=1, sys_flag=_SUBSCRIPTION_IN_REQUEST, commit_offset=0, suspend_timeout_millis=0,
            subscription="*", sub_version=self._clock.wall_ms(), expression_type="TAG",
        )  # fmt: skip
        response = await self._client.invoke(address, RequestCode.PULL_MESSAGE, header, timeout_s=_TIMEOUT_S)
        if response.code in _GONE:
            raise MessageGone(f"{address} has no such message: {response.code} {response.remark}")
        if response.code != ResponseCode.SUCCESS:
            raise ClientError(f"{address} answers {response.code} {response.remark}")
        view = memoryview(response.body)
        record = decode(view[: int.from_bytes(view[:4], "big")])
        if not isinstance(record, Record) or record.queue_offset != offset:
            raise MessageGone(f"{address} has another message at offset {offset}")
        return record

    async def _address(self, checkpoint: PopCheckPoint) -> str:
        """Return the address of the member that clients of the checkpoint's broker use as master."""
        assert self._name_servers is not None
        route = await self._name_servers.topic_route(checkpoint.t)
        for group in route.broker_datas:
            if group.broker_name == checkpoint.bn:
                address, _ = subscribe_address(dict(group.broker_addrs), MASTER_ID)
                if address:
                    return address
        raise ClientError(f"no member of {checkpoint.bn} is online")

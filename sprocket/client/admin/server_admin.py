"""Administration of servers: their configurations, the name servers' values, write permissions, replication.

Source of requests: RocketMQ 5.3.3, `MQClientAPIImpl`, and the commands of `tools.command.broker`, `namesrv`, `ha`.
"""

from sprocket.client.admin.admin_client import AdminClient, AdminError
from sprocket.client.answers import header_of
from sprocket.common import properties
from sprocket.common.errors import ConfigError, ProtocolError
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.bodies.stats import HARuntimeInfo
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    ResetMasterFlushOffsetHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)


class ServerAdmin:
    """Client of the servers that `admin` finds.  Every method raises AdminError."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def groups(self, cluster: str) -> list[tuple[str | None, list[str]]]:
        """Return, for each broker group of `cluster` by name, its master's address (None without one) and its slaves'.

        Source: RocketMQ 5.3.3, `CommandUtil.fetchMasterAndSlaveDistinguish`.
        """
        info = await self._admin.cluster_info()
        if cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise AdminError(f"cluster {cluster} is not known; known are: {known}")
        names = sorted(name for name in info.cluster_addr_table[cluster] if name in info.broker_addr_table)
        members = [info.broker_addr_table[name].broker_addrs for name in names]
        return [
            (each.get(MASTER_ID), [address for id_, address in sorted(each.items()) if id_ != MASTER_ID])
            for each in members
        ]

    # Configurations

    async def broker_config(self, broker: str) -> dict[str, str]:
        """Return every key and value of a broker's configuration."""
        return _properties(await self._admin.ask(broker, RequestCode.GET_BROKER_CONFIG), broker)

    async def update_broker_config(self, broker: str, key: str, value: str) -> str | None:
        """Change a key of a broker.  Return the broker's note, such as why the change ends with its process."""
        body = properties.render({key: value}).encode()
        return (await self._admin.ask(broker, RequestCode.UPDATE_BROKER_CONFIG, None, body)).remark

    async def name_server_configs(self) -> dict[str, dict[str, str]]:
        """Return every key and value of each name server's configuration, by address."""
        outcomes = await self._admin.ask_name_servers(RequestCode.GET_NAMESRV_CONFIG)
        return {address: _properties(_response(outcome), address) for address, outcome in outcomes.items()}

    async def update_name_server_configs(self, key: str, value: str) -> dict[str, str | None]:
        """Change a key of all name servers.  Return their notes, by address."""
        body = properties.render({key: value}).encode()
        outcomes = await self._admin.ask_name_servers(RequestCode.UPDATE_NAMESRV_CONFIG, None, body)
        return {address: _response(outcome).remark for address, outcome in outcomes.items()}

    # Write permissions

    async def wipe_write_perm(self, broker_name: str) -> dict[str, int | AdminError]:
        """Take the write permission from all routes of a broker.  Return the topics changed, by name server."""
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        outcomes = await self._admin.ask_name_servers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return {
            address: outcome
            if isinstance(outcome, AdminError)
            else header_of(outcome, WipeWritePermOfBrokerResponseHeader, AdminError).wipe_topic_count
            for address, outcome in outcomes.items()
        }

    async def add_write_perm(self, broker_name: str) -> dict[str, int | AdminError]:
        """Add the write permission to all routes of a broker.  Return the topics changed, by name server."""
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
        outcomes = await self._admin.ask_name_servers(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return {
            address: outcome
            if isinstance(outcome, AdminError)
            else header_of(outcome, AddWritePermOfBrokerResponseHeader, AdminError).add_topic_count
            for address, outcome in outcomes.items()
        }

    # Replication

    async def ha_status(self, broker: str) -> HARuntimeInfo:
        """Return how far each slave of a master is, or how far a slave is."""
        response = await self._admin.ask(broker, RequestCode.GET_BROKER_HA_STATUS)
        try:
            return loads(response.body, HARuntimeInfo)
        except ProtocolError as error:
            raise AdminError(f"the answer of {broker} is no HARuntimeInfo: {error}") from None

    async def reset_master_flush_offset(self, broker: str, offset: int) -> None:
        """Set the flushed offset of the master that a slave remembers."""
        header = ResetMasterFlushOffsetHeader(master_flush_offset=offset)
        await self._admin.ask(broker, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)


def _response(outcome: ReceivedResponse | AdminError) -> ReceivedResponse:
    if isinstance(outcome, AdminError):
        raise outcome
    return outcome


def _properties(response: ReceivedResponse, address: str) -> dict[str, str]:
    try:
        return {entry.key: entry.value for entry in properties.parse(bytes(response.body), address)}
    except ConfigError as error:
        raise AdminError(f"the answer is no configuration: {error}") from None

"""Part of the administration client: configurations and files of servers, write permissions, replication.

Source of requests: RocketMQ 5.3.3, `MQClientAPIImpl`, and the commands of `tools.command.broker`, `namesrv`, `ha`.
"""

from collections.abc import Callable, Mapping

from sprocket.client import arguments
from sprocket.client.admin.admin_requests import AdminError, AdminRequests, ConfigRefused, broker_names
from sprocket.client.answers import header_of
from sprocket.client.errors import IllegalArgument
from sprocket.common.config import properties
from sprocket.common.errors import ConfigError
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.bodies.stats import HARuntimeInfo
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import ReceivedResponse
from sprocket.remoting.headers.cold_flow import SetCommitLogReadModeRequestHeader
from sprocket.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    ResetMasterFlushOffsetHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)


class ServerRequests(AdminRequests):
    """What `AdminClient` asks about servers.  Every method raises AdminError."""

    async def broker_groups(self, cluster: str) -> list[tuple[str | None, list[str]]]:
        """Return, for each broker group of `cluster` by name, its master's address (None without one) and its slaves'.

        Source: RocketMQ 5.3.3, `CommandUtil.fetchMasterAndSlaveDistinguish`.
        """
        info = await self.cluster_info()
        groups = [info.broker_addr_table.get(name) for name in broker_names(info, cluster)]
        members = [group.broker_addrs for group in groups if group is not None]
        return [
            (each.get(MASTER_ID), [address for id_, address in sorted(each.items()) if id_ != MASTER_ID])
            for each in members
        ]

    # Configurations

    async def broker_config(self, broker: str) -> dict[str, str]:
        """Return every key and value of a broker's configuration."""
        return await self.config_at(broker, RequestCode.GET_BROKER_CONFIG)

    async def update_broker_config(self, broker: str, changes: Mapping[str, str]) -> str | None:
        """Change keys of a broker, all or none.  Return the broker's note, such as why a change ends with its process.

        Raises ConfigRefused, and IllegalArgument without a change.
        """
        return await self.update_config_at(broker, RequestCode.UPDATE_BROKER_CONFIG, changes)

    async def name_server_config(self, name_server: str) -> dict[str, str]:
        """Return every key and value of a name server's configuration."""
        return await self.config_at(name_server, RequestCode.GET_NAMESRV_CONFIG)

    async def update_name_server_config(self, name_server: str, changes: Mapping[str, str]) -> str | None:
        """Change keys of a name server, all or none.  Return its note.  Raises as `update_broker_config`."""
        return await self.update_config_at(name_server, RequestCode.UPDATE_NAMESRV_CONFIG, changes)

    async def config_at(self, address: str, code: RequestCode) -> dict[str, str]:
        """Return every key and value of a server's configuration, by the request `code` of its kind."""
        response = await self.ask(address, code)
        try:
            return {entry.key: entry.value for entry in properties.parse(bytes(response.body), address)}
        except ConfigError as error:
            raise AdminError(f"the answer is no configuration: {error}") from None

    async def update_config_at(self, address: str, code: RequestCode, changes: Mapping[str, str]) -> str | None:
        """Change keys of a server by the request `code` of its kind.  Raises as `update_broker_config`."""
        body = _rendered(changes)
        try:
            return (await self.ask(address, code, None, body)).remark
        except AdminError as error:
            raise _of_config(error, changes) from None

    # Write permissions

    async def wipe_write_perm(self, broker_name: str) -> dict[str, int | AdminError]:
        """Take the write permission from all routes of a broker.  Return the topics changed, by name server."""
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        outcomes = await self.ask_name_servers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        return _changed(
            outcomes, lambda found: header_of(found, WipeWritePermOfBrokerResponseHeader, AdminError).wipe_topic_count
        )

    async def add_write_perm(self, broker_name: str) -> dict[str, int | AdminError]:
        """Add the write permission to all routes of a broker.  Return the topics changed, by name server."""
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
        outcomes = await self.ask_name_servers(RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return _changed(
            outcomes, lambda found: header_of(found, AddWritePermOfBrokerResponseHeader, AdminError).add_topic_count
        )

    # Replication

    async def ha_status(self, broker: str) -> HARuntimeInfo:
        """Return how far each slave of a master is, or how far a slave is."""
        return await self.ask_body(broker, RequestCode.GET_BROKER_HA_STATUS, HARuntimeInfo)

    async def reset_master_flush_offset(self, broker: str, offset: int) -> None:
        """Set the flushed offset of the master that a slave remembers, in bytes.  Raises IllegalArgument below 0."""
        header = ResetMasterFlushOffsetHeader(master_flush_offset=arguments.whole("offset", offset, 0))
        await self.ask(broker, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)

    # Files

    async def clean_expired_queues(self, broker: str) -> None:
        """Have a broker remove the ConsumeQueues whose messages have all expired."""
        await self.ask(broker, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def delete_expired_commit_log(self, broker: str) -> None:
        """Have a broker remove expired CommitLog files now, whatever the hour."""
        await self.ask(broker, RequestCode.DELETE_EXPIRED_COMMITLOG)

    async def clean_unused_topics(self, broker: str) -> None:
        """Have a broker remove the ConsumeQueues of unknown topics."""
        await self.ask(broker, RequestCode.CLEAN_UNUSED_TOPIC)

    # Reads of old messages

    async def set_read_ahead(self, broker: str, *, on: bool) -> str:
        """Switch read-ahead of the CommitLog.  Return what the broker says about it."""
        header = SetCommitLogReadModeRequestHeader(read_ahead_mode=0 if arguments.switch("on", on) else 1)
        return (await self.ask(broker, RequestCode.SET_COMMITLOG_READ_MODE, header)).remark or ""

    async def set_cold_threshold(self, broker: str, group: str, threshold_bytes: int) -> None:
        """Set how many cold bytes a group may read in 5 s.  Raises IllegalArgument below 0."""
        threshold = arguments.whole("threshold_bytes", threshold_bytes, 0)
        body = properties.render({group: str(threshold)}).encode()
        await self.ask(broker, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=body)

    async def remove_cold_threshold(self, broker: str, group: str) -> None:
        """Remove the threshold of a group for reads of old messages."""
        await self.ask(broker, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=group.encode())


def _changed(
    outcomes: Mapping[str, ReceivedResponse | AdminError], count: Callable[[ReceivedResponse], int]
) -> dict[str, int | AdminError]:
    return {address: one if isinstance(one, AdminError) else count(one) for address, one in outcomes.items()}


def _rendered(changes: Mapping[str, str]) -> bytes:
    if not isinstance(changes, Mapping) or not changes:
        raise IllegalArgument("no key to change; pass a mapping such as {'maxMessageSize': '8388608'}")
    for text in (*changes, *changes.values()):
        arguments.text("changes", text, "pass keys and values as str")
    return properties.render(changes).encode()


def _of_config(error: AdminError, changes: Mapping[str, str]) -> AdminError:
    """Return `error`, as ConfigRefused if it is about the change.

    NO_PERMISSION says that too, not only access control.  Our servers name the key then, and RocketMQ's the black list.
    """
    said = str(error)
    is_about_change = error.code == ResponseCode.INVALID_PARAMETER or (
        error.code == ResponseCode.NO_PERMISSION and ("black list" in said or any(key in said for key in changes))
    )
    return ConfigRefused(said, error.code, error.fields, error.remark) if is_about_change else error

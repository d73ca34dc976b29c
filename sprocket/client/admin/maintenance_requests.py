"""Part of the administration client: maintenance of single brokers, given by address.

Source of requests: RocketMQ 5.3.3, `MQClientAPIImpl`, and the commands of `tools.command.broker` and `ha`.
"""

from sprocket.client import arguments
from sprocket.client.admin.admin_requests import AdminRequests
from sprocket.common.config import properties
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.cold_flow import SetCommitLogReadModeRequestHeader
from sprocket.remoting.headers.namesrv import ResetMasterFlushOffsetHeader


class MaintenanceRequests(AdminRequests):
    """What `AdminClient` asks of the files of brokers.  Every method raises AdminError."""

    async def clean_expired_queues(self, broker: str) -> None:
        """Have a broker remove the ConsumeQueues whose messages have all expired."""
        await self.ask(broker, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def delete_expired_commit_log(self, broker: str) -> None:
        """Have a broker remove expired CommitLog files now, whatever the hour."""
        await self.ask(broker, RequestCode.DELETE_EXPIRED_COMMITLOG)

    async def clean_unused_topics(self, broker: str) -> None:
        """Have a broker remove the ConsumeQueues of unknown topics."""
        await self.ask(broker, RequestCode.CLEAN_UNUSED_TOPIC)

    async def reset_master_flush_offset(self, broker: str, offset: int) -> None:
        """Set the flushed offset of the master that a slave remembers, in bytes.  Raises IllegalArgument below 0."""
        header = ResetMasterFlushOffsetHeader(master_flush_offset=arguments.whole("offset", offset, 0))
        await self.ask(broker, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)

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

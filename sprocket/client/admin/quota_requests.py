"""Part of the administration client: quotas on single brokers, given by address.  Not in RocketMQ."""

from sprocket.client.admin.admin_requests import AdminRequests
from sprocket.remoting.bodies.quota import Quota, QuotaTableBody, QuotaUsageBody, QuotaUse
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode


class QuotaRequests(AdminRequests):
    """What `AdminClient` asks about quotas.  Every method raises AdminError."""

    async def set_quota(self, broker: str, quota: Quota) -> None:
        """Add or replace a quota at a master; its slaves follow."""
        await self.ask(broker, RequestCode.SET_QUOTA, body=dumps(quota))

    async def delete_quota(self, broker: str, name: str) -> None:
        """Delete a quota at a master; its slaves follow."""
        await self.ask(broker, RequestCode.DELETE_QUOTA, body=name.encode())

    async def quotas(self, broker: str) -> dict[str, Quota]:
        """Return the quotas of a broker by name."""
        return (await self.ask_body(broker, RequestCode.GET_ALL_QUOTAS, QuotaTableBody)).quota_table

    async def quota_usage(self, broker: str) -> list[QuotaUse]:
        """Return how much of each quota is used at a broker, the most used first."""
        return (await self.ask_body(broker, RequestCode.GET_QUOTA_USAGE, QuotaUsageBody)).uses

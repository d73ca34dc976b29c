"""The lease of a link, at real brokers."""

import pytest

from replicate.cluster import Cluster
from replicate.lease import Lease
from replicate.records import QUEUES, TOPIC
from sprocket.client.admin.admin_client import AdminError
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.common.clock import SystemClock
from sprocket.testing import Broker


async def test_a_broker_that_came_later_and_lacks_the_topic_does_not_end_replication(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker() as new, Broker() as old:
        async with Cluster("a", ClientSettings(namesrv=old.namesrv), SystemClock()) as target:
            one, other = (Lease(target, "b", owner, SystemClock()) for owner in ("one", "other"))

            async def masters() -> dict[str, str]:
                return {"broker-a": new.address, "broker-b": old.address}

            monkeypatch.setattr(target, "masters", masters)
            with pytest.raises(AdminError, match="no master has the topic"):
                await one.renew()
            await target.admin.create_compacted_topic(old.address, TOPIC, QUEUES)
            await one.renew()
            await other.renew()
            assert one.is_held and not other.is_held
            await one.release()
            await other.renew()
            assert other.is_held

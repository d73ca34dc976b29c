"""What a controller exports."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from sprocket.metrics.declared import Value
from sprocket.metrics.distribution import Distribution
from sprocket.metrics.settings import ExporterType
from sprocket.remoting.codes import RequestCode, ResponseCode
from tests.controller.site import CLUSTER, GROUP, Site, group_of, site_at
from tests.metrics.prometheus_page import scrape_here
from tests.waiting import until


def values(families: Mapping[str, list[tuple[Mapping[str, str], Value]]], name: str) -> dict[tuple[str, ...], Value]:
    own = {"address", "group", "peer_id"}
    return {
        tuple(text for label, text in sorted(labels.items()) if label not in own): value
        for labels, value in families[name]
    }


async def readings(site: Site) -> dict[str, list[tuple[Mapping[str, str], Value]]]:
    return {reading.name: reading.points async for reading in site.server.metrics.read()}


@pytest.mark.code(RequestCode.CONTROLLER_ELECT_MASTER)
async def test_requests_proposals_and_elections(site: Site) -> None:
    async with group_of(site, 2) as (master, slave):
        await site.elect(master.broker_id, expect=ResponseCode.CONTROLLER_MASTER_STILL_EXIST)
        assert values(await readings(site), "sprocket_replicas_gone") == {(GROUP, CLUSTER): 0}
        await master.die()
        await until(lambda: site.group.master_id == slave.broker_id)
        found = await readings(site)
    assert values(found, "active_broker_num") == {(GROUP, CLUSTER): 1}
    assert values(found, "sprocket_replicas_gone") == {(GROUP, CLUSTER): 1}
    elections = values(found, "election_total")
    assert elections[GROUP, CLUSTER, "keep_current_master"] >= 1  # type: ignore[operator] # a number
    assert elections[GROUP, CLUSTER, "new_master_elected"] >= 1  # type: ignore[operator]
    requests = values(found, "request_total")
    assert requests["success", "CONTROLLER_APPLY_BROKER_ID"] == 2
    assert requests["success", "CONTROLLER_BROKER_HEARTBEAT"] >= 2  # type: ignore[operator]
    times = values(found, "request_latency")["CONTROLLER_APPLY_BROKER_ID",]
    assert isinstance(times, Distribution)
    assert times.count == 2
    proposals, latency = values(found, "dledger_op_total"), values(found, "dledger_op_latency")["success", "append"]
    assert isinstance(latency, Distribution)
    assert proposals["success", "append"] == latency.count > 4


async def test_role_and_disk(site: Site) -> None:
    found = await readings(site)
    assert [value for _, value in found["role"]] == [3]
    labels, size = found["dledger_disk_usage"][0]
    assert labels["peer_id"] == "n0"
    assert isinstance(size, int)


async def test_page_of_a_controller(tmp_path: Path) -> None:
    changes = {"metrics_exporter_type": ExporterType.PROM, "metrics_prom_exporter_port": 0}
    async with site_at(tmp_path, **changes) as site:
        families = await scrape_here(site.server.export.port or 0)
    assert families["role"].kind == "gauge"
    assert families["dledger_disk_usage_bytes"].label_names == {frozenset({"address", "group", "peer_id"})}

"""What a proxy exports."""

from sprocket.metrics.settings import ExporterType
from sprocket.testing import Broker
from tests.metrics.prometheus_page import scrape_here
from tests.proxy.rig import running


async def test_page_of_a_proxy(broker: Broker) -> None:
    prom = {"metrics_exporter_type": ExporterType.PROM, "metrics_prom_exporter_port": 0, "proxy_name": "p1"}
    async with running(broker, **prom) as rig:
        families = await scrape_here(rig.proxy.export.port or 0)
    own = {"node_type": "proxy", "cluster": "DefaultCluster", "node_id": "p1", "proxy_mode": "cluster"}
    assert families["rocketmq_proxy_up"].samples == [("rocketmq_proxy_up", own, 1.0)]
    assert [value for _, _, value in families["sprocket_proxy_serving"].samples] == [1.0]

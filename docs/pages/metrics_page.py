"""Writes docs/metrics.md: what to watch, and the metrics that brokers, controllers and proxies declare.

Run as ``python -m docs.pages.metrics_page <file>`` (`make docs`); a test compares the file with it.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.server import Broker
from controller.config import ControllerConfig
from controller.live_brokers import LiveBrokers
from controller.metrics import ControllerCounts, node_metrics
from docs.pages.command import write
from sprocket.common.clock import SystemClock
from sprocket.metrics.declared import Metric
from sprocket.metrics.prometheus_text import exported_name
from store.config.store_config import StoreConfig

_HEAD: Final = """\
# Metrics

Written by `make docs` from `docs/pages/metrics_page.py` and the declarations in the code; do not edit.

Brokers, controllers and proxies export metrics under the names, labels and units of Apache RocketMQ 5.3.3, so its
dashboards and alerts work. Metrics that RocketMQ does not have begin with `sprocket_`. Name servers export none, as in
RocketMQ. [figures.md](figures.md) has the figures that `mqadmin brokerStatus` shows.

## Turn it on

| metricsExporterType | What happens | Needs |
|---|---|---|
| `PROM` | Prometheus reads `http://<metricsPromExporterHost>:<metricsPromExporterPort>/metrics`, port 5557 | nothing |
| `OTLP_GRPC` | the server sends to `metricsGrpcExporterTarget`, as `http://collector:4317` | the extra `metrics` |
| `LOG` | the server writes OTLP JSON to its log, one line each time | the extra `metrics` |

    # broker.conf, controller.conf
    metricsExporterType = PROM

The other keys are in [configuration.md](configuration.md). The page shows names of topics and groups, and needs no
password, as in RocketMQ. Leave `metricsPromExporterHost` at the broker's own address. Or set it to `127.0.0.1`, and let
an agent on the machine read the page. Brokers on one machine need different ports. A change of these keys needs a
restart. The keys `enable*Metrics` leave groups of a broker's metrics out, as with RocketMQ 5.3.4 and later.

## What to watch

`conf/prometheus/alerts.yml` has alert rules for these questions, and `conf/grafana/sprocket.json` is a dashboard.
`conf/prometheus/prometheus.yml` is a scrape configuration. A test runs every query against a broker.

| Question | Query | Act when |
|---|---|---|
| Are sends confirmed? | `sprocket_sends_confirmed` | 0, or no value where there was one |
| Is a replica gone? | `sprocket_replicas_gone` of controllers | above 0 |
| Is a slave out of sync? | `sprocket_replicas_in_sync` | fewer than in the last day |
| Is a group behind? | `rocketmq_consumer_lag_latency_milliseconds` | above the delay that the application allows |
| Is it stuck? | `sprocket_consumer_stalled_time_milliseconds` | minutes: it has messages and makes no progress |
| Is one queue behind the others? | `sprocket_consumer_lag_skew` | above 3 with a lag: one key or one slow member |
| Has the group no consumer? | `sprocket_consumer_group_connected == 0` with a lag | always: the application is down |
| Do dead letters appear? | `increase(rocketmq_send_to_dlq_messages_total[10m])` | above 0: see `sprocket dlq` |
| Do sends wait? | `sprocket_send_wait_milliseconds` by `stage` | `flush`: the disk; `slave`: the network or the slave |
| Is the store slow? | `sprocket_store_append_time_milliseconds` | the 99th percentile is above 10 ms |
| Does the disk keep up? | `rocketmq_storage_flush_behind_bytes` | it grows |
| Are requests slow? | `rocketmq_rpc_latency_milliseconds` by `request_code` | high without `is_long_polling="true"` |
| Are timers late? | `rocketmq_timer_dequeue_latency_milliseconds` | above a few seconds |
| Do transactions stay open? | `rocketmq_half_messages` | it grows: producers do not commit |

## What differs

- Counters begin at 0 with each start, as in RocketMQ. Use `rate` and `increase`.
- `rocketmq_rpc_latency` ends when the connection has the response. RocketMQ's ends when the operating system has taken
  the response. Requests that were read together all have the latency of their batch. Requests that load shedding
  refuses are not counted.
- `rocketmq_processor_watermark` is 0: requests wait in no queue.
- `rocketmq_timer_dequeue_latency` is in ms, as its unit says; RocketMQ exports seconds under that unit.
- `rocketmq_consumer_lag_latency` is 0 if there is no message; RocketMQ exports a huge negative number for an empty
  retry topic.
- Two metrics have a wrong unit in their names, as in RocketMQ. `rocketmq_finish_message_latency` counts seconds, and
  `rocketmq_pop_revive_lag` counts records; both names end with milliseconds. The right unit would change the names.
- One pop can return retried messages and others. `rocketmq_throughput_out_total` divides its bytes between the two by
  the number of messages.
- With `estimateAccumulation`, the lag of a group that subscribes to some tags counts only messages with these tags.
  Their number is estimated from the first `maxConsumeQueueScan` entries. SQL92 expressions are not estimated.
- `metricsOtelCardinalityLimit` limits the series of each metric. Further series are not exported; the log says so once.
- A proxy in local mode has a metrics page of its own, at another port than its broker's.

## Cost

Values are read in the event loop when an exporter asks for them. Groups and topics are read in slices. Counting a batch
of sends costs one call; an exporter also measures latencies
(`make bench-system ARGS="--quick --engines sprocket,metrics"`). CPU of a read of sends on two quiet cores, broker
and client in one process; the control is a second connection without counting, so differences
below 2 % are noise:

| Sends in a read | Without counting, us for each | Control | Counting | With an exporter |
|---|--:|--:|--:|--:|
| 1 of 128 bytes | 83.0 | -0.2 % | -1.8 % | +3.3 % |
| 8 of 128 bytes | 12.8 | +1.8 % | +0.8 % | +0.8 % |
| 64 of 128 bytes | 3.0 | -0.6 % | -0.7 % | +0.8 % |
| 64 of 1 KiB | 8.5 | +0.9 % | +0.3 % | +0.3 % |

"""


def _table(title: str, metrics: Iterable[Metric]) -> str:
    lines = [f"## {title}\n\n| Metric | Kind | Labels | Meaning |\n|---|---|---|---|\n"]
    for metric in sorted(metrics, key=lambda one: one.name):
        name = exported_name(metric.name, metric.kind, metric.unit)
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{name}` | {metric.kind.value} | {labels} | {metric.says} |\n")
    return "".join([*lines, "\n"])


_NAMES: Final = """\
The names are those that Prometheus sees. In OTLP and in the log, a name does not end with the unit (`milliseconds`,
`bytes`, `seconds`, `microseconds`): the unit is a field of the metric. All metrics of a broker have the labels
`cluster`, `node_type` and `node_id`. Those of a controller have `address`, `group` and `peer_id`. The labels of
`metricsLabel` are added to all.

"""
_PROXY: Final = """\
## Proxy

| Metric | Kind | Labels | Meaning |
|---|---|---|---|
| `rocketmq_proxy_up` | gauge | | 1: the proxy runs |
| `sprocket_proxy_held_messages` | gauge | | messages whose invisible time is renewed |
| `sprocket_proxy_receiving` | gauge | | calls that wait for messages |
| `sprocket_proxy_serving` | gauge | | 1 if there are brokers and calls are served |
"""


def page() -> str:
    """Return the text of docs/metrics.md."""
    with tempfile.TemporaryDirectory() as folder:
        config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", listen_port=0, namesrv_addr="")
        store = StoreConfig(store_path_root_dir=Path(folder) / "store", enable_lmq=True)
        broker = Broker(config, store).metrics.metrics
    own = node_metrics(ControllerConfig(), LiveBrokers(0), tuple, bool, lambda folder: 0)
    controller = [*own, *ControllerCounts(SystemClock()).metrics()]
    return (
        _HEAD
        + _table("Broker", broker).replace("\n\n|", f"\n\n{_NAMES}|", 1)
        + _table("Controller", controller)
        + _PROXY
    )


if __name__ == "__main__":
    write(page())

"""Settings of the export of metrics, which broker, controller and proxy declare by inheriting them.

Source of names and defaults: RocketMQ 5.3.3, `BrokerConfig`, `ControllerConfig`, `ProxyConfig`, `MetricsExporterType`.
"""

from dataclasses import dataclass
from enum import StrEnum

from sprocket.common.config.setting_fields import bool_setting, int_setting, setting, text_setting
from sprocket.common.errors import ConfigError


class ExporterType(StrEnum):
    """Way in which metrics leave the server."""

    DISABLE = "DISABLE"
    OTLP_GRPC = "OTLP_GRPC"
    PROM = "PROM"
    LOG = "LOG"


@dataclass(frozen=True)
class MetricsSettings:
    """Export of metrics."""

    metrics_exporter_type: ExporterType = setting(
        ExporterType.DISABLE,
        "PROM serves metrics to Prometheus, OTLP_GRPC sends them to an OpenTelemetry collector, LOG writes them to "
        "the log; DISABLE exports none.",
        allowed=tuple(ExporterType),
    )
    metrics_prom_exporter_port: int = int_setting(5557, "Port for Prometheus; 0 means a free port.", 0, maximum=65535)
    metrics_prom_exporter_host: str = text_setting(
        "",
        "Address to serve Prometheus on; the empty text means brokerIP1 of a broker.  The others take bindAddress, "
        "or 127.0.0.1 where that is all addresses.",
    )
    metrics_grpc_exporter_target: str = text_setting(
        "", "Collector of OpenTelemetry, as in `http://host:4317`; without `http` TLS."
    )
    metrics_grpc_exporter_header: str = text_setting(
        "", "Headers for the collector: `name:value`, several separated by `,`."
    )
    metric_grpc_exporter_time_out_in_mills: int = int_setting(
        3_000, "Time limit of one export to the collector.", 1, "ms"
    )
    metric_grpc_exporter_interval_in_mills: int = int_setting(
        60_000, "Pause between exports to the collector.", 100, "ms"
    )
    metric_logging_exporter_interval_in_mills: int = int_setting(10_000, "Pause between exports to the log.", 100, "ms")
    metrics_label: str = text_setting("", "More labels of all metrics: `name:value`, several separated by `,`.")
    metrics_in_delta: bool = bool_setting(
        False, "OTLP_GRPC and LOG export what counters have grown since the last export."
    )


def pairs(key: str, text: str) -> dict[str, str]:
    """Return the pairs of ``name:value,name:value``.  Raises ConfigError that names `key`."""
    found = {}
    for item in text.split(","):
        if item.strip():
            name, separator, value = item.partition(":")
            if not separator or not name.strip() or ":" in value:
                raise ConfigError(f"{key} = {text!r}: allowed is name:value, several separated by a comma")
            found[name.strip()] = value.strip()
    return found

"""Configuration of the proxy: the keys of rmq-proxy.json.

Source: RocketMQ 5.3.3, `ProxyConfig`, `AuthConfig`.  The file is one JSON object.  Unknown keys and keys without effect
are notices with their names and lines.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname
from typing import Any, Final

from acl.auth.settings import AuthSettings
from acl.gate_settings import GateSettings
from proxy.convert.delay_levels import delays_ms
from proxy.listeners import GRPC, REMOTING, Listener, parse_listeners
from sprocket.common.config.configuration import Configuration, read
from sprocket.common.config.properties import Entry
from sprocket.common.config.setting_fields import bool_setting, int_setting, made_setting, text_setting
from sprocket.common.errors import ConfigError
from sprocket.common.limits import MAX_FRAME_BYTES
from sprocket.common.logs.settings import LogSettings
from sprocket.metrics.health import HealthSettings
from sprocket.metrics.settings import ExporterType, MetricsSettings

MAX_FILE_BYTES: Final = 1024 * 1024
_MODES: Final = ("CLUSTER", "LOCAL")
AUTO: Final = "auto"
GRPCIO: Final = "grpcio"
H2CORN: Final = "h2corn"
_BESIDE_BODY_BYTES: Final = 1024 * 1024


@dataclass(frozen=True)
class ProxyConfig(MetricsSettings, HealthSettings, LogSettings):
    """Everything that an operator can set for a proxy.  Times are ms unless the key says otherwise."""

    rocketmq_cluster_name: str = text_setting(
        "DefaultCluster", "Cluster whose brokers exist before the proxy serves.", key="rocketMQClusterName"
    )
    proxy_cluster_name: str = text_setting("DefaultCluster", "Cluster of proxies, in metrics.")
    proxy_name: str = made_setting(gethostname, "Name of the proxy, in metrics.", default_text="the host name")
    namesrv_addr: str = text_setting("", "Name servers, with ; between them; -n overrides it.")
    proxy_mode: str = text_setting("CLUSTER", "CLUSTER, or LOCAL with a broker in this process.")
    broker_config_path: str = text_setting("", "The broker's file in local mode; -bc overrides it.")
    bind_address: str = text_setting("0.0.0.0", "Address to listen on; 0.0.0.0 and :: mean all, of IPv4 and IPv6.")
    grpc_server_port: int = int_setting(8081, "Port for gRPC clients; 0: any free one.", 0, maximum=65535)
    grpc_server: str = text_setting(
        AUTO,
        "HTTP/2 server of the gRPC ports: h2corn, grpcio, or auto: h2corn where it is installed, grpcio "
        "elsewhere.  A key of Sprocket.",
    )
    remoting_listen_port: int = int_setting(
        8080, "Port for remoting clients, such as those of RocketMQ 4; 0: any free one; -1: none.", -1, maximum=65535
    )
    remoting_access_addr: str = text_setting(
        "", "Host in the routes of remoting clients; empty: the address that the client connected to."
    )
    proxy_processes: int = int_setting(
        1, "Processes that share the ports, so that the proxy uses several cores.", 1, "", 64
    )
    listeners: str = text_setting(
        "",
        'Further ports, each with the address that routes name to clients which connect there: [{"name": "lan", '
        '"port": 8091, "advertise": "10.0.0.5:8091"}]. With "protocol": "remoting" for remoting clients.',
    )
    use_endpoint_port_from_request: bool = bool_setting(
        False, "Whether routes name the port that the client gave, not grpcServerPort."
    )
    grpc_shutdown_time_seconds: int = int_setting(30, "Time for long polls and work of clients at a stop.", 0, "s")
    grpc_max_inbound_message_size: int = int_setting(
        130 * 1024 * 1024,
        "Limit of one request.  Never above maxMessageSize and 1 MiB, or 16 MiB without: no broker takes more.",
        1024,
        "bytes",
        2**31 - 1,
    )
    grpc_max_inbound_metadata_size: int = int_setting(
        8192, "Limit of the metadata of one request.", 1024, "bytes", 2**20
    )
    grpc_max_concurrent_streams: int = int_setting(
        1024, "Calls of one connection at a time; further ones wait.", 1, "", 2**20
    )
    grpc_max_in_flight_size: int = int_setting(
        256 * 1024 * 1024,
        "Requests that are served, of all calls; and once more answers that wait for their clients.  A connection may "
        "have a quarter of it.  Above it each connection has an equal share; above twice this size calls are refused.",
        1,
        "bytes",
    )
    grpc_client_idle_time_mills: int = int_setting(
        120_000, "A connection without calls is closed after this time.", 1000, "ms", 2**31 - 1
    )
    grpc_write_timeout_millis: int = int_setting(
        10_000, "A client that does not read a message for this time loses the call.", 10, "ms"
    )
    max_message_size: int = int_setting(4 * 1024 * 1024, "Limit of a body; 0: none.", 0, "bytes")
    enable_message_body_empty_check: bool = bool_setting(True, "Whether empty bodies are refused.")
    max_user_property_size: int = int_setting(
        16 * 1024, "Limit of user properties, tag and keys together; 0: none.", 0, "bytes"
    )
    user_property_max_num: int = int_setting(128, "Number of user properties.", 0)
    max_message_group_size: int = int_setting(64, "Limit of a message group; 0: none.", 0, "bytes")
    max_lite_topic_size: int = int_setting(64, "Limit of the name of a lite topic.", 1, "bytes")
    max_lite_renew_num_per_channel: int = int_setting(
        100, "A consumer of lite topics with more messages that it has not acknowledged gets no others.", 0
    )
    max_sync_lite_subscription_rate: int = int_setting(
        5000, "New subscriptions of lite topics that are taken in a second.", 1
    )
    enable_topic_message_type_check: bool = bool_setting(
        True, "Whether a topic takes only messages of its message.type."
    )
    max_delay_time_mills: int = int_setting(86_400_000, "Limit of delays; 0: none.", 0, "ms")
    use_delay_level: bool = bool_setting(False, "Whether delays become levels, for brokers without a timer.")
    message_delay_level: str = text_setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", "The brokers' levels."
    )
    max_transaction_recovery_second: int = int_setting(
        3600, "Limit of the time until an open transaction is checked; 0: none.", 0, "s"
    )
    transaction_heartbeat_period_second: int = int_setting(
        20, "Interval of heartbeats for transactional producers.", 1, "s"
    )
    heartbeat_syncer_topic_name: str = text_setting(
        "DefaultHeartBeatSyncerTopic",
        "Topic through which the proxies of a cluster tell each other of their consumers; empty: they do not.",
    )
    heartbeat_syncer_topic_cluster_name: str = text_setting("", "Cluster of that topic; empty: rocketMQClusterName.")
    local_serve_addr: str = text_setting(
        "", "Address by which other proxies and operators know this one; empty: the machine's."
    )
    register_consumers_at_brokers: bool = bool_setting(
        False,
        "Whether the proxy is a member of its gRPC clients' groups at the brokers, so that tools which ask a "
        "broker reach a client; always so in local mode.",
    )
    grpc_proxy_relay_request_timeout_in_seconds: int = int_setting(
        5, "How long a gRPC client may take to answer a command.", 1, "s"
    )
    default_invisible_time_mills: int = int_setting(
        60_000, "Invisible time of messages that the proxy renews.", 1000, "ms"
    )
    min_invisible_time_mills_for_recv: int = int_setting(
        10_000, "Least invisible time that a receive may ask for.", 0, "ms"
    )
    max_invisible_time_mills: int = int_setting(43_200_000, "Limit of invisible times; 0: none.", 0, "ms")
    invisible_time_millis_when_clear: int = int_setting(
        1000, "Messages of a client that died are visible again after this time.", 1, "ms"
    )
    enable_proxy_auto_renew: bool = bool_setting(
        True, "Whether the proxy keeps messages invisible while push consumers work on them."
    )
    max_renew_retry_times: int = int_setting(3, "Failed renewals in a row, then none.", 1)
    renew_ahead_time_millis: int = int_setting(
        10_000, "A renewal happens this long before the invisible time ends.", 1, "ms"
    )
    renew_max_time_millis: int = int_setting(
        10_800_000, "A message is renewed for this time at most, then retried.", 1, "ms"
    )
    renew_schedule_period_millis: int = int_setting(5000, "Interval at which due renewals are looked for.", 10, "ms")
    channel_expired_timeout: int = int_setting(120_000, "A client that is silent for this time is dead.", 1000, "ms")
    client_lost_timeout_millis: int = int_setting(
        30_000, "A client whose telemetry stream broke is dead if it is silent for this time after.", 100, "ms"
    )
    telemetry_settings_timeout_millis: int = int_setting(
        30_000, "A telemetry stream without settings is closed after this time.", 10, "ms"
    )
    grpc_client_producer_max_attempts: int = int_setting(3, "Attempts of a send.", 1)
    grpc_client_producer_backoff_initial_millis: int = int_setting(10, "Pause after a send's first failure.", 0, "ms")
    grpc_client_producer_backoff_max_millis: int = int_setting(1000, "Longest such pause.", 0, "ms")
    grpc_client_producer_backoff_multiplier: int = int_setting(2, "Its growth.", 1)
    grpc_client_consumer_min_long_polling_timeout_millis: int = int_setting(5000, "Shortest long poll.", 0, "ms")
    grpc_client_consumer_max_long_polling_timeout_millis: int = int_setting(20_000, "Longest long poll.", 0, "ms")
    grpc_client_consumer_long_polling_batch_size: int = int_setting(
        32, "Messages of one receive of a push consumer.", 1
    )
    topic_route_service_cache_refresh_seconds: int = int_setting(
        20, "Interval at which routes are asked for again.", 1, "s"
    )
    topic_config_cache_refresh_seconds: int = int_setting(20, "Age at which a topic's type is asked for again.", 0, "s")
    subscription_group_config_cache_refresh_seconds: int = int_setting(
        20, "Age at which a group's configuration is asked for again.", 0, "s"
    )
    metric_collector_mode: str = text_setting("off", "Where clients send metrics: off, on or proxy.")
    metric_collector_address: str = text_setting("", "host:port for metricCollectorMode = on.")
    tls_test_mode_enable: bool = bool_setting(
        True, "Whether TLS uses a certificate made at the start, instead of the files."
    )
    tls_key_path: str = text_setting("", "File with the private key.")
    tls_cert_path: str = text_setting("", "File with the certificate chain.")
    tls_server_mode: str = text_setting(
        "permissive", "disabled: no TLS. permissive: TLS and plain text. enforcing: TLS alone."
    )
    auth_config_path: str = text_setting(
        "", "Folder with the auth.json of a broker, whose users may call if calls must be signed."
    )

    def check(self) -> None:
        """Raise ConfigError for values that do not fit together."""
        if self.proxy_mode.upper() not in _MODES:
            raise ConfigError(f"proxyMode = {self.proxy_mode!r}: allowed is CLUSTER or LOCAL")
        if self.is_local and self.proxy_processes > 1:
            raise ConfigError(f"proxyProcesses = {self.proxy_processes}: with proxyMode = LOCAL allowed is 1")
        if self.proxy_processes > 1 and self.metrics_exporter_type is ExporterType.PROM:
            highest = 65536 - self.proxy_processes
            if not 0 < self.metrics_prom_exporter_port <= highest:
                raise ConfigError(
                    f"metricsPromExporterPort = {self.metrics_prom_exporter_port}: {self.proxy_processes} processes "
                    f"take as many ports from it on; allowed is 1 to {highest}"
                )
        if self.grpc_server not in (AUTO, GRPCIO, H2CORN):
            raise ConfigError(f"grpcServer = {self.grpc_server!r}: allowed is {AUTO}, {GRPCIO} or {H2CORN}")
        if self.tls_server_mode not in ("disabled", "permissive", "enforcing"):
            raise ConfigError(f"tlsServerMode = {self.tls_server_mode!r}: allowed is disabled, permissive or enforcing")
        if self.metric_collector_mode.lower() not in ("off", "on", "proxy"):
            raise ConfigError(f"metricCollectorMode = {self.metric_collector_mode!r}: allowed is off, on or proxy")
        host, _, port = self.metric_collector_address.rpartition(":")
        if self.metric_collector_mode.lower() == "on" and not (host and port.isdecimal() and int(port) < 65536):
            raise ConfigError(f"metricCollectorAddress = {self.metric_collector_address!r}: allowed is host:port")
        try:
            if not delays_ms(self.message_delay_level):
                raise ValueError("no level")
        except ValueError:
            raise ConfigError(
                f"messageDelayLevel = {self.message_delay_level!r}: allowed are words such as 1s 5s 1m 2h"
            ) from None
        if (
            not self.tls_test_mode_enable
            and self.tls_server_mode != "disabled"
            and not (self.tls_key_path and self.tls_cert_path)
        ):
            raise ConfigError("tlsTestModeEnable = false: give tlsKeyPath and tlsCertPath, or tlsServerMode = disabled")
        parse_listeners(self.listeners)
        self.check_log()

    @property
    def is_local(self) -> bool:
        return self.proxy_mode.upper() == "LOCAL"

    @property
    def max_request_bytes(self) -> int:
        """Limit of one gRPC request: what brokers take, with room for all that is not a body."""
        body = self.max_message_size or MAX_FRAME_BYTES
        return min(self.grpc_max_inbound_message_size, body + _BESIDE_BODY_BYTES, MAX_FRAME_BYTES)

    @property
    def named_listeners(self) -> list[Listener]:
        return [one for one in parse_listeners(self.listeners) if one.protocol == GRPC]

    @property
    def remoting_listeners(self) -> list[Listener]:
        return [one for one in parse_listeners(self.listeners) if one.protocol == REMOTING]


def load(path: Path | None, overrides: Mapping[str, str]) -> Configuration:
    """Return the configuration in the JSON file `path`; `overrides` win.  Raises ConfigError."""
    entries = [] if path is None else list(_entries(path))
    return read([ProxyConfig, AuthSettings, GateSettings], entries, str(path), overrides)


def _entries(path: Path) -> Iterator[Entry]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: more than {MAX_FILE_BYTES} bytes: this is no configuration")
    try:
        text = content.decode()
        table = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: allowed is one JSON object with keys and values")
    for key, value in table.items():
        found = re.search(rf"{re.escape(json.dumps(key))}\s*:", text)
        line = text.count("\n", 0, found.start()) + 1 if found else 1
        yield Entry(key, _text(value), line)


def _text(value: Any) -> str:
    """Return a value of JSON as the text of a property; objects and lists stay JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value)

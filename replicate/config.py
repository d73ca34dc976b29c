"""Configuration of replication: a TOML file with the clusters and the links between them.

docs/geo-replication.md explains the keys.  Unknown keys are errors.
"""

import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

import msgspec

from replicate.protocol.marks import CLUSTER_ID
from replicate.token_file import TokenFile
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.common.clock import Clock
from sprocket.common.config.configuration import read
from sprocket.common.errors import ConfigError
from sprocket.metrics.settings import ExporterType, MetricsSettings
from sprocket.remoting.credentials import Credentials, TokenCredentials
from sprocket.remoting.message.topic_names import DLQ_PREFIX, RETRY_PREFIX
from sprocket.remoting.tls.settings import TlsSettings, file_properties


class ClusterConfig(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """One cluster: its name servers, and the user and the TLS settings with which it is reached."""

    namesrv: str
    access_key: str = ""
    secret_key: str = ""
    security_token: str = ""
    token_file: str = ""  # holds a token (JWT), in place of access-key; it may be renewed at any time
    tls_config: str = ""  # a client.properties, or the folder that holds it

    def in_folder(self, folder: Path) -> "ClusterConfig":
        """Return it with paths that start from `folder`, if they are relative."""
        paths = {"token_file": self.token_file, "tls_config": self.tls_config}
        return msgspec.structs.replace(self, **{key: str(folder / path) for key, path in paths.items() if path})

    def client_settings(self, clock: Clock) -> ClientSettings:
        """Return the settings of clients.  Raises ConfigError."""
        credentials: Credentials | None = None
        if self.token_file:
            try:
                credentials = TokenCredentials(TokenFile(Path(self.token_file), clock))
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"token-file = {self.token_file!r} cannot be read: {error}") from None
        elif self.access_key:
            credentials = Credentials(self.access_key, self.secret_key, self.security_token)
        return ClientSettings(namesrv=self.namesrv, credentials=credentials, tls=self.tls())

    def tls(self) -> TlsSettings | None:
        """Return the TLS settings, None for plain connections.  Raises ConfigError."""
        if not self.tls_config:
            return None
        return read([TlsSettings], [], overrides=file_properties(Path(self.tls_config))).of(TlsSettings)


class LinkConfig(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """One direction.  Patterns are those of a shell: ``orders-*``."""

    source: str
    target: str
    topics: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    groups: tuple[str, ...] = ("*",)
    forward: bool = True
    start: str = "first"
    on_refused: str = "stop"
    batch_bytes: int = 7 * 512 * 1024  # below RocketMQ's maxMessageSize
    ahead_bytes: int = 256 * 1024 * 1024  # of all queues
    compress: bool = False  # bodies that producers did not compress
    rate_bytes: int = 0  # in a second; 0: no limit
    checkpoint_s: float = 5.0
    offsets_s: float = 10.0
    send_timeout_s: float = 10.0

    def takes_topic(self, topic: str) -> bool:
        """Return whether a topic of applications is copied; a retry or dead-letter topic is, with its group."""
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            if topic.startswith(prefix):
                return self.takes_group(topic.removeprefix(prefix))
        return _matches(topic, self.topics) and not _matches(topic, self.exclude)

    def takes_group(self, group: str) -> bool:
        """Return whether a group's offsets are written to the target."""
        return _matches(group, self.groups)


class Config(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """The whole file."""

    clusters: dict[str, ClusterConfig]
    links: tuple[LinkConfig, ...]
    home: str = ""  # of a pair: where applications work in peace
    metrics_port: int = -1  # for Prometheus, on 127.0.0.1; -1: none

    def checked(self) -> "Config":
        """Return itself.  Raises ConfigError."""
        for name, cluster in self.clusters.items():
            if not CLUSTER_ID.fullmatch(name):
                raise ConfigError(f"cluster {name!r}: use 1 to 32 letters, digits, '-' and '_'")
            if cluster.token_file and cluster.access_key:
                raise ConfigError(f"cluster {name}: it has access-key and token-file; keep one of them")
        for link in self.links:
            _check_link(link, self.clusters)
        if self.home and self.home not in self.clusters:
            raise ConfigError(f"home = {self.home!r} is no cluster of this file; use one of {sorted(self.clusters)}")
        if not self.is_pair:
            self._check_offsets()
        if len({(link.source, link.target) for link in self.links}) < len(self.links):
            raise ConfigError("two links have the same source and target; put their topics into one")
        return self

    def _check_offsets(self) -> None:
        """Refuse a link to a cluster that no link reads, if messages of others come to both: offsets would miss some.

        Raises ConfigError.
        """
        patterns = sorted({pattern for link in self.links for pattern in link.topics})
        for link, pattern in product(self.links, patterns):
            links = [each for each in self.links if each.takes_topic(pattern)]
            is_read = any(each.source == link.target for each in links)
            is_one_way = link not in links or self.is_one_way(link.source, link.target, pattern)
            if link.groups and not is_read and not is_one_way:
                raise ConfigError(
                    f"link {link.source} to {link.target}: other clusters are copied to both, so offsets of groups "
                    f"need a link that reads {link.target} for topics {pattern}; add one, or set groups = [] here"
                )

    def link(self, source: str, target: str) -> LinkConfig | None:
        """Return the link of a direction, None if there is none."""
        return next((link for link in self.links if (link.source, link.target) == (source, target)), None)

    @property
    def is_pair(self) -> bool:
        """Whether it has two clusters."""
        return len(self.clusters) == 2

    def is_one_way(self, source: str, target: str, topic: str) -> bool:
        """Return whether all messages of a topic that `source` and `target` share go by the link between them."""
        links = [link for link in self.links if link.takes_topic(topic)]
        if not any(link.target == source for link in links):
            return True
        return not any(link.source == target or (link.target == target and link.source != source) for link in links)

    def origins(self, cluster: str, topic: str) -> frozenset[str]:
        """Return the clusters whose messages of a topic come to `cluster` by any way, and itself."""
        found, looked_at = {cluster}, [cluster]
        while looked_at:
            target = looked_at.pop()
            for link in self.links:
                if link.target == target and link.source not in found and link.takes_topic(topic):
                    found.add(link.source)
                    looked_at += [link.source] if link.forward else []
        return frozenset(found)

    def metrics(self) -> MetricsSettings:
        """Return the settings of the export."""
        if self.metrics_port < 0:
            return MetricsSettings()
        return MetricsSettings(
            metrics_exporter_type=ExporterType.PROM, metrics_prom_exporter_port=self.metrics_port
        )  # fmt: skip


def parse_config(text: str) -> Config:
    """Return the configuration in `text`.  Raises ConfigError."""
    try:
        return msgspec.convert(tomllib.loads(text), Config).checked()
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError(f"the configuration of replication: {error}") from None


def load_config(path: Path) -> Config:
    """Return the configuration in a file, from whose folder relative paths start.  Raises ConfigError."""
    try:
        config = parse_config(path.read_text())
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}") from None
    clusters = {name: cluster.in_folder(path.absolute().parent) for name, cluster in config.clusters.items()}
    return msgspec.structs.replace(config, clusters=clusters)


def _check_link(link: LinkConfig, clusters: Mapping[str, ClusterConfig]) -> None:
    where = f"link {link.source} to {link.target}"
    for name in (link.source, link.target):
        if name not in clusters:
            raise ConfigError(f"{where}: {name!r} is no cluster of this file; use one of {sorted(clusters)}")
    if link.source == link.target:
        raise ConfigError(f"{where}: a cluster is not copied to itself; name two clusters")
    if link.start not in ("first", "last"):
        raise ConfigError(f"{where}: start = {link.start!r}; allowed are 'first' and 'last'")
    if link.on_refused not in ("stop", "skip"):
        raise ConfigError(f"{where}: on-refused = {link.on_refused!r}; allowed are 'stop' and 'skip'")
    if not 4096 <= link.batch_bytes <= 4 * 1024 * 1024:
        raise ConfigError(f"{where}: batch-bytes = {link.batch_bytes}; allowed are 4096 to 4194304")
    if min(link.checkpoint_s, link.offsets_s, link.send_timeout_s) <= 0 or link.rate_bytes < 0:
        raise ConfigError(f"{where}: times are above 0, and rate-bytes is 0 or above")


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)

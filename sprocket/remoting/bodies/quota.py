"""Bodies of requests about quotas.  Not in RocketMQ."""

from typing import Final

import msgspec

from sprocket.remoting.bodies.topic import DataVersion

_BURST_MILLIS: Final = 1000


class Quota(msgspec.Struct, rename="camel", frozen=True):
    """Limits of one resource, or of each resource whose name a pattern matches.  0 is no limit.

    `name` is ``dimension:pattern``, such as ``topic:Orders``, ``account:team-a`` or ``address:10.1.*``.  Rates are per
    second.  `burst_millis` is the time without use after which so much more may come at once.  A soft quota only
    reports.  A quota with `is_cluster_wide` is divided among the masters of the cluster.
    """

    name: str
    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0
    requests: int = 0
    storage_bytes: int = 0
    drops_oldest: bool = False
    backlog_messages: int = 0
    burst_millis: int = _BURST_MILLIS
    is_soft: bool = False
    is_cluster_wide: bool = False

    def limits_text(self) -> str:
        """Return what it limits, for people: ``messagesIn=5 clusterWide``."""
        fields = msgspec.to_builtins(self)
        amounts = [f"{key}={value}" for key, value in fields.items() if type(value) is int and key != "burstMillis"]
        shown = [text for text in amounts if not text.endswith("=0")]
        if self.burst_millis != _BURST_MILLIS:
            shown.append(f"burstMillis={self.burst_millis}")
        flags = (("dropsOldest", self.drops_oldest), ("clusterWide", self.is_cluster_wide))
        return " ".join([*shown, *(text for text, is_on in flags if is_on)])


class QuotaTableBody(msgspec.Struct, rename="camel"):
    """Content of quotas.json, and body of the response to GET_ALL_QUOTAS."""

    quota_table: dict[str, Quota] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class QuotaUse(msgspec.Struct, rename="camel"):
    """Use of one limit of a quota: `resource` is the one of those that the quota matches which uses it most.

    `rate` is what was used in a second of late, `asked` the same with what was refused or delayed; `limit` is this
    broker's share.  `used_total` and `exceeded_total` count since the start.
    """

    quota: str
    resource: str
    kind: str
    limit: float
    rate: float
    asked: float
    used_total: int
    exceeded_total: int

    @property
    def part(self) -> float:
        """What part of the limit is asked for."""
        return self.asked / self.limit if self.limit else 0.0


class QuotaUsageBody(msgspec.Struct, rename="camel"):
    """Body of the response to GET_QUOTA_USAGE."""

    broker_name: str = ""
    uses: list[QuotaUse] = []

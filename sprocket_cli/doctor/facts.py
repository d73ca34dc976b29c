"""What `sprocket doctor` knows before it judges.  Gathered at the edge, by `machine_facts` and `cluster_facts`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sprocket.client.admin.cluster_health import ClusterLook
    from sprocket.remoting.bodies.quota import Quota


@dataclass(frozen=True)
class Machine:
    """Limits of the machine and of processes of this user.  None: the system does not tell."""

    open_files: int
    max_map_count: int | None
    memory_bytes: int | None
    memory_available_bytes: int | None


@dataclass(frozen=True)
class StorePlace:
    """Folder of a store.  `error` says why it cannot be written; `sync_ms` is the median of a few small syncs."""

    path: str
    total_bytes: int
    free_bytes: int
    file_system: str
    error: str | None = None
    sync_ms: float | None = None
    is_in_use: bool = False


@dataclass(frozen=True)
class Port:
    """Port that a server will listen on."""

    key: str
    number: int
    is_taken: bool


@dataclass(frozen=True)
class Certificate:
    """Certificate file; `days_left` until the first of its certificates ends, or why it cannot be read."""

    key: str
    path: str
    days_left: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class Local:
    """A broker's configuration, and what its machine has for it."""

    keys: Mapping[str, str]
    store: StorePlace
    ports: list[Port] = field(default_factory=list)
    certificates: list[Certificate] = field(default_factory=list)


@dataclass(frozen=True)
class NameServerState:
    """Response of one name server; `error` is None if it answered.  `brokers`: what it lists."""

    address: str
    error: str | None = None
    brokers: frozenset[str] = frozenset()


@dataclass(frozen=True)
class BrokerState:
    """Response of one broker that a name server lists; without an answer, nothing more is known.

    `skew_ms` is its clock minus ours, with an error of `skew_error_ms`; None if it does not tell.
    """

    name: str
    broker_id: int
    address: str
    version: str = ""
    sprocket_version: str = ""
    skew_ms: float | None = None
    skew_error_ms: float = 0.0
    keys: Mapping[str, str] = field(default_factory=dict)
    quotas: "Mapping[str, Quota] | None" = None  # None: it does not tell, or has no quotas
    tokens_not_renewed: str = ""  # users whose tokens are about to end
    token_key_troubles: str = ""


@dataclass(frozen=True)
class Cluster:
    """Everything that answered; `look` at `now_ms`.  `topics` are those of the name servers; empty if none tells."""

    name_servers: list[NameServerState]
    brokers: list[BrokerState]
    look: "ClusterLook"
    now_ms: int
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Facts:
    """All facts; None: not asked for."""

    machine: Machine
    local: Local | None = None
    cluster: Cluster | None = None

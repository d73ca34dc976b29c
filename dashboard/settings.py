"""Settings of a dashboard, checked at construction."""

from dataclasses import dataclass, field

from dashboard.security.hosts import is_loopback
from sprocket.common.errors import ConfigError
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.tls.settings import TlsSettings


@dataclass(frozen=True, kw_only=True)
class DashboardSettings:
    """Where the dashboard listens, what it asks, and its limits.

    `credentials` sign the requests of the charts alone: visitors log in as themselves.  `allowed_hosts` are names under
    which browsers reach the dashboard, besides localhost and addresses.
    """

    name_servers: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    allow_changes: bool = False
    allowed_hosts: tuple[str, ...] = ()
    credentials: Credentials | None = field(default=None, repr=False)
    tls: TlsSettings | None = None
    # Limits
    request_timeout_s: float = 3.0  # of one request to one server
    page_timeout_s: float = 30.0
    max_requests_at_once: int = 32  # to servers, of all pages together
    max_form_bytes: int = 256 * 1024
    max_sessions: int = 200
    session_idle_s: float = 1800.0
    session_limit_s: float = 12 * 3600.0
    logins_per_s: float = 0.1
    logins_burst: int = 5
    sample_interval_s: float = 15.0

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        if not self.name_servers:
            raise ConfigError("the dashboard has no name server: name at least one, as host:port")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port {self.port}: allowed is 0 to 65535")
        if self.sample_interval_s < 1:
            raise ConfigError(f"sample_interval_s {self.sample_interval_s}: allowed is 1 or more")

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the dashboard."""
        return is_loopback(self.host)

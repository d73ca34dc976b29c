"""`sprocket dashboard`: pages in a browser about a cluster."""

import importlib.util
import sys
from typing import TYPE_CHECKING, Final

import click

from sprocket.common.extras import install
from sprocket_cli.client_session import (
    HELP,
    WrongUsage,
    log_level_option,
    name_servers,
    namesrv_option,
    tool_credentials,
    tool_tls,
    wrong_usage,
)
from sprocket_cli.server.server_commands import start_line

if TYPE_CHECKING:
    from dashboard.server import Dashboard
    from dashboard.settings import DashboardSettings
    from sprocket.remoting.credentials import Credentials

DEFAULT_PORT: Final = 8080


@click.command(context_settings=HELP)
@namesrv_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="Port.")
@click.option("--allow-changes", is_flag=True, help="Let visitors send, redrive, reset offsets, and change accounts.")
@click.option(
    "--allowed-host", "allowed_hosts", multiple=True, metavar="NAME",
    help="Name under which browsers reach the dashboard; repeatable. Addresses and localhost are always allowed.",
)  # fmt: skip
@click.option(
    "--access-key", envvar="SPROCKET_ACCESS_KEY", show_envvar=True,
    help="User that reads the figures of the charts. Without it: the account in $ROCKETMQ_HOME/conf/tools.yml.",
)  # fmt: skip
@click.option(
    "--secret-key", envvar="SPROCKET_SECRET_KEY", show_envvar=True,
    help="Its secret key. Better in the environment: other users of the machine see the command line.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the start line as JSON.")
@log_level_option
def dashboard(
    namesrv: str | None, host: str, port: int, allow_changes: bool, allowed_hosts: tuple[str, ...],
    access_key: str | None, secret_key: str | None, as_json: bool, log_level: str,
) -> None:  # fmt: skip
    """Serve pages about a cluster to browsers.

    Visitors log in as users of the cluster. A cluster without access control needs no login.
    """
    require_web()
    addresses = name_servers(namesrv)
    credentials = _credentials(access_key, secret_key)
    from dashboard.server import Dashboard
    from dashboard.settings import DashboardSettings
    from sprocket.common.clock import SystemClock
    from sprocket_cli.server.server_process import Process, log_to_stderr

    with wrong_usage():
        settings = DashboardSettings(
            name_servers=tuple(addresses), host=host, port=port, allow_changes=allow_changes,
            allowed_hosts=allowed_hosts, credentials=credentials, tls=tool_tls(),
        )  # fmt: skip
    log_to_stderr(log_level)
    served = Dashboard(settings, SystemClock())
    sys.exit(Process().run([lambda: served], lambda: dashboard_line(served, as_json)))


def _credentials(access_key: str | None, secret_key: str | None) -> "Credentials | None":
    from sprocket.remoting.credentials import Credentials

    if bool(access_key) != bool(secret_key):
        raise WrongUsage("--access-key and --secret-key belong together: give both or neither")
    if access_key and secret_key:
        return Credentials(access_key, secret_key)
    with wrong_usage():
        return tool_credentials()


def require_web() -> None:
    """Raise WrongUsage that names the extra if aiohttp or Jinja2 is missing."""
    for module in ("aiohttp", "jinja2"):
        if importlib.util.find_spec(module) is None:
            raise WrongUsage(f"the dashboard needs {module}: {install('dashboard')}")


def dashboard_beside(host: str, port: int, allow_changes: bool, namesrv: str) -> "Dashboard":
    """Return a dashboard for a cluster in the same process."""
    from dashboard.server import Dashboard
    from dashboard.settings import DashboardSettings
    from sprocket.common.clock import SystemClock

    settings = DashboardSettings(
        name_servers=(namesrv,), host=host, port=port, allow_changes=allow_changes,
        credentials=tool_credentials(), tls=tool_tls(),
    )  # fmt: skip
    return Dashboard(settings, SystemClock())


def dashboard_line(served: "Dashboard", as_json: bool) -> str:
    """Return the start line."""
    settings: DashboardSettings = served.settings
    facts: dict[str, object] = {"dashboard": settings.host, "port": served.port, "url": served.url}
    changes = "changes are allowed" if settings.allow_changes else "read-only; --allow-changes lets it change things"
    return start_line(facts, f"dashboard: {served.url} ({changes})", as_json)

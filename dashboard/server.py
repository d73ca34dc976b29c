"""The dashboard's server: listens, samples, and stops in order."""

import asyncio
import logging
import secrets
from typing import Final

from aiohttp import web

from dashboard.access import Access
from dashboard.application import Pages
from dashboard.page import PageRoute
from dashboard.pages import (
    accounts,
    charts,
    cluster,
    dead_letters,
    groups,
    messages,
    namespaces,
    offsets,
    quotas,
    replication,
    schedules,
    send,
    topics,
)
from dashboard.sampling.history import History
from dashboard.sampling.sampler import Sampler
from dashboard.settings import DashboardSettings
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.at_once import AtOnce
from sprocket.common.clock import Clock
from sprocket.metrics.http_connections import HttpConnections
from sprocket.remoting.serving.listening import CannotListen, bound, serve

logger = logging.getLogger(__name__)

ROUTES: tuple[PageRoute, ...] = (
    *cluster.ROUTES,
    *charts.ROUTES,
    *topics.ROUTES,
    *groups.ROUTES,
    *messages.ROUTES,
    *dead_letters.ROUTES,
    *send.ROUTES,
    *offsets.ROUTES,
    *accounts.ROUTES,
    *schedules.ROUTES,
    *namespaces.ROUTES,
    *quotas.ROUTES,
    *replication.ROUTES,
)
_STOP_LIMIT_S = 5.0
# One browser opens six.
_MAX_CONNECTIONS: Final = 512
# Limits on the head of a request, on its answer, and on the time until the next one.
_HEAD_LIMIT_S: Final = 10.0
_ANSWER_LIMIT_S: Final = 60.0
_IDLE_S: Final = 30.0


class Dashboard:
    """One dashboard; a `Server` of `sprocket_cli.server.server_process`."""

    def __init__(self, settings: DashboardSettings, clock: Clock) -> None:
        self.settings = settings
        self._closing: set[asyncio.Task[None]] = set()
        self._sampling: asyncio.Task[None] | None = None
        at_once = AtOnce(settings.max_requests_at_once)
        history = History(settings.sample_interval_s)
        self.access = Access(settings, clock, _new_id, at_once, self._close_later)
        self._own = AdminClient(
            settings.name_servers,
            timeout_s=settings.request_timeout_s,
            credentials=settings.credentials,
            tls=settings.tls,
        )
        self._sampler = Sampler(
            self._own, history, at_once, clock, interval_s=settings.sample_interval_s, sleep=asyncio.sleep
        )
        self._connections = HttpConnections(_MAX_CONNECTIONS, _HEAD_LIMIT_S, _ANSWER_LIMIT_S)
        self._server: asyncio.Server | None = None
        pages = Pages(
            settings, self.access, at_once, history, clock, ROUTES, new_id=_new_id, key=secrets.token_bytes(32),
            answering=self._connections.answering,
        )  # fmt: skip
        self._runner = web.AppRunner(
            pages.application(), access_log=None, shutdown_timeout=_STOP_LIMIT_S, keepalive_timeout=_IDLE_S
        )

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._server is not None, "the dashboard is not started"
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Address for a browser on this machine."""
        host = self.settings.host
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{self.port}/"

    async def start(self) -> None:
        """Listen and begin to sample.  Raises CannotListen, TlsUnusable."""
        await self.access.start()
        await self._own.__aenter__()
        await self._runner.setup()
        make, connections = self._runner.server, self._connections
        assert make is not None, "setup makes it"
        try:
            self._server = await bound(
                lambda: connections.protocol(make), self.settings.host, self.settings.port, backlog=_MAX_CONNECTIONS
            )
            await serve(self._server)
        except OSError as error:
            raise CannotListen(self.settings.host, self.settings.port, error, "--port") from None
        self._sampling = asyncio.get_running_loop().create_task(self._sampler.run())
        if not self.settings.is_local and not await self.access.needs_login():
            logger.warning(
                "event=dashboard_open host=%s reason='the cluster has no access control, so nobody must log in'",
                self.settings.host,
            )

    async def stop(self) -> None:
        """Close the port, end the sessions, close the connections."""
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()
        await self.access.stop()
        await self._own.__aexit__(None, None, None)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _close_later(self, client: AdminClient) -> None:
        task = asyncio.get_running_loop().create_task(client.__aexit__(None, None, None))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _new_id() -> str:
    """Return an id that nobody can guess, for a cookie: 43 characters."""
    return secrets.token_urlsafe(32)

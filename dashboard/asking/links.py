"""Question for the links that lead into this cluster: what their replicators wrote last."""

import asyncio
from typing import Final

from dashboard.settings import DashboardSettings
from replicate.cluster import Cluster
from replicate.report import LinkReport, reports_of_target
from sprocket.client.admin.at_once import AtOnce, Outcomes
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.common.cancellation import outcome_of
from sprocket.common.clock import Clock
from sprocket.common.errors import ClientError
from sprocket.remoting.credentials import Credentials

TABLE: Final = "the table of replication"
LinkOutcomes = Outcomes[str, list[LinkReport]]


class LinkLook:
    """Looks of one session.

    A look makes connections of its own, and in an outage it takes long: so it takes no place of other requests, and
    the visits of a session share one.
    """

    def __init__(self, settings: DashboardSettings, credentials: Credentials | None, clock: Clock) -> None:
        self._client = ClientSettings(namesrv=settings.name_servers, credentials=credentials, tls=settings.tls)
        self._clock = clock
        self._look: asyncio.Task[LinkOutcomes] | None = None
        self._is_stopped = False

    async def outcomes(self) -> LinkOutcomes:
        """Return what `TABLE` says, or why it is silent, as AtOnce does.  Raises ClientError after `stop`."""
        ended = ClientError("the session has ended; open the page again")
        if self._is_stopped:
            raise ended
        if self._look is None:
            self._look = asyncio.create_task(AtOnce(1).each([TABLE], lambda _: self._reports()))
            self._look.add_done_callback(self._ended)
        return await outcome_of(self._look, ended)

    def _ended(self, _: "asyncio.Task[LinkOutcomes]") -> None:
        self._look = None

    async def _reports(self) -> list[LinkReport]:
        async with Cluster("", self._client, self._clock) as cluster:
            return await reports_of_target(cluster, self._clock)

    def stop(self) -> None:
        """End a look that goes on; none begins after it."""
        self._is_stopped = True
        if self._look is not None:
            self._look.cancel()

"""Task that asks the brokers of a cluster for their figures every few seconds."""

import logging
from collections.abc import Awaitable, Callable

from dashboard.sampling.history import MAX_MEMBERS, SPAN_MS, History, counts_of
from sprocket.client.admin.admin_client import AdminClient, AdminDenied, AdminError
from sprocket.client.admin.at_once import AtOnce, answered, failures
from sprocket.common.clock import Clock
from sprocket.remoting.bodies.route import MASTER_ID

logger = logging.getLogger(__name__)


class Sampler:
    """Sampler of the cluster of `admin` into `history`, every `interval_s`."""

    def __init__(
        self, admin: AdminClient, history: History, at_once: AtOnce, clock: Clock, *, interval_s: float,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._admin = admin
        self._history = history
        self._at_once = at_once
        self._clock = clock
        self._interval_s = interval_s
        self._sleep = sleep

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            try:
                await self.sample()
            except Exception as error:
                # Charts are no reason to end the process.
                logger.error("event=sample_failed", exc_info=error)
            await self._sleep(self._interval_s)

    async def sample(self) -> None:
        """Take one sample of each master, and record which brokers answer."""
        now_ms = self._clock.wall_ms()
        try:
            info = await self._admin.cluster_info()
        except AdminError as error:
            self._history.record_problem(_problem(error))
            return
        names = {
            address: (data.broker_name, broker_id)
            for _, data in sorted(info.broker_addr_table.items())
            for broker_id, address in sorted(data.broker_addrs.items())
        }
        outcomes = await self._at_once.each(list(names)[:MAX_MEMBERS], self._admin.broker_runtime_info)
        self._history.saw(info, outcomes, now_ms)
        for address, runtime in answered(outcomes).items():
            name, broker_id = names[address]
            counts = counts_of(runtime, now_ms)
            if broker_id == MASTER_ID and counts is not None:
                self._history.add(name, counts)
        refused = failures(outcomes)
        has_some = len(refused) < len(outcomes) or not refused
        self._history.record_problem("" if has_some else _problem(next(iter(refused.values()))))
        self._history.forget_before(now_ms - SPAN_MS)


def _problem(error: AdminError) -> str:
    if isinstance(error, AdminDenied):
        return (
            "The cluster has access control and the dashboard has no account of its own for the charts. "
            "Start it with --access-key and SPROCKET_SECRET_KEY of a user that may read broker figures."
        )
    return f"The last sample failed: {error}"

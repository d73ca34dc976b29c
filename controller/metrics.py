"""Metrics of a controller: its role, its disk, the brokers it hears, requests, proposals and elections.

Source of names, labels and boundaries: RocketMQ 5.3.3, `ControllerMetricsManager`, `ControllerMetricsConstant`.
"""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from controller.config import ControllerConfig
from controller.live_brokers import LiveBrokers
from controller.state.commands import Outcome
from controller.state.group import Group
from sprocket.common.clock import Clock
from sprocket.metrics.declared import Kind, Metric, Value, gauge
from sprocket.metrics.distribution import Distributions, Labels
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.routes import Handler, Result, Route

_LATENCIES_US: Final = (*(step * 10**power for power in range(7) for step in (1, 3, 5)), 10**7)
_LEADER, _FOLLOWER = 3, 2
_CODE: Final = RequestCode
_TYPES: Final = {
    _CODE.GET_BROKER_EPOCH_CACHE: "CONTROLLER_GET_BROKER_EPOCH_CACHE",
    _CODE.NOTIFY_BROKER_ROLE_CHANGED: "CONTROLLER_NOTIFY_BROKER_ROLE_CHANGED",
    _CODE.BROKER_HEARTBEAT: "CONTROLLER_BROKER_HEARTBEAT",
    _CODE.UPDATE_CONTROLLER_CONFIG: "CONTROLLER_UPDATE_CONTROLLER_CONFIG",
    _CODE.GET_CONTROLLER_CONFIG: "CONTROLLER_GET_CONTROLLER_CONFIG",
    _CODE.CLEAN_BROKER_DATA: "CONTROLLER_CLEAN_BROKER_DATA",
}
_ELECTIONS: Final = {
    ResponseCode.SUCCESS: "new_master_elected",
    ResponseCode.CONTROLLER_MASTER_STILL_EXIST: "keep_current_master",
}


class ControllerCounts:
    """Counts of requests, of proposals to the other controllers, and of elections."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._requests: Counter[tuple[str, str]] = Counter()
        self._request_times = Distributions(_LATENCIES_US)
        self._proposals: Counter[str] = Counter()
        self._proposal_times = Distributions(_LATENCIES_US)
        self._elections: Counter[tuple[str, str, str]] = Counter()

    def timed(self, routes: Iterable[Route]) -> list[Route]:
        """Return `routes`, with their requests counted and timed."""
        return [
            route if route.handle is None else replace(route, handle=self._around(route.handle, route.code))
            for route in routes
        ]

    def _around(self, handle: Handler, code: RequestCode) -> Handler:
        name = _TYPES.get(code, code.name)

        async def timed(request: Request[Any]) -> Result:
            began, status = self._clock.monotonic(), "failed"
            try:
                answer = handle(request)
                response = await answer if inspect.isawaitable(answer) else answer
                status = "success"
            except TimeoutError:
                status = "timeout"
                raise
            finally:
                self._requests[name, status] += 1
                self._request_times.add((name,), self._since(began))
            return response

        return timed

    def _since(self, began: float) -> int:
        return int((self._clock.monotonic() - began) * 1e6)

    def proposing(self) -> Callable[[str], None]:
        """Return what to call with the status of a proposal that begins now: success, failed or timeout."""
        began = self._clock.monotonic()

        def ended(status: str) -> None:
            self._proposals[status] += 1
            if status == "success":
                self._proposal_times.add(("append", status), self._since(began))

        return ended

    def elected(self, cluster: str, name: str, outcome: Outcome) -> None:
        """Count an election."""
        result = _ELECTIONS.get(ResponseCode(outcome.code), "no_master_elected")
        self._elections[cluster, name, result] += 1

    def metrics(self) -> list[Metric]:
        """Return the metrics."""
        count, operation = Kind.COUNTER, "dledger_operation"
        return [
            Metric(
                "request_total", count, "requests", lambda: list(self._requests.items()),
                ("request_type", "request_handle_status"),
            ),
            Metric(
                "request_latency", Kind.HISTOGRAM, "time to serve a request", self._request_times.read,
                ("request_type",), "us",
            ),
            Metric(
                "dledger_op_total", count, "changes proposed to the controllers",
                lambda: [(("append", status), number) for status, number in self._proposals.items()],
                (operation, "dLedger_operation_status"),
            ),
            Metric(
                "dledger_op_latency", Kind.HISTOGRAM, "time until a majority has a change", self._proposal_times.read,
                (operation, "dLedger_operation_status"), "us",
            ),
            Metric(
                "election_total", count, "elections of masters", lambda: list(self._elections.items()),
                ("cluster", "broker_set", "election_result"),
            ),
        ]  # fmt: skip


def node_metrics(
    config: ControllerConfig,
    live: LiveBrokers,
    groups: Callable[[], Iterable[Group]],
    is_leader: Callable[[], bool],
    disk_usage: Callable[[Path], int],
) -> list[Metric]:
    """Return the metrics of the controller itself; `disk_usage` returns the bytes of all files below a folder."""

    def active() -> Iterator[tuple[Labels, Value]]:
        yield from Counter((cluster, name) for cluster, name, _ in live.keys).items()

    def silent() -> Iterator[tuple[Labels, Value]]:
        keys = set(live.keys)
        for group in groups():
            count = sum((group.cluster, group.name, broker_id) not in keys for broker_id in group.broker_ids)
            yield (group.cluster, group.name), count

    return [
        gauge("role", "3: leads, 2: follows", lambda: _LEADER if is_leader() else _FOLLOWER),
        gauge("dledger_disk_usage", "bytes of the files", lambda: disk_usage(config.controller_store_path), "bytes"),
        Metric("active_broker_num", Kind.GAUGE, "brokers that send heartbeats", active, ("cluster", "broker_set")),
        Metric(
            "sprocket_replicas_gone",
            Kind.GAUGE,
            "members of a group that send no heartbeats",
            silent,
            ("cluster", "broker_set"),
        ),
    ]


def bytes_below(folder: Path) -> int:
    """Return the bytes of all files below `folder`; files that vanish meanwhile do not count."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total

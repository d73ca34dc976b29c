"""Times that the creation of topics and groups took.

Source of names, labels and boundaries: RocketMQ 5.3.3, `AdminBrokerProcessor`, `BrokerMetricsManager`,
`InvocationStatus`.
"""

import inspect
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from broker.metrics.labels import is_system_topic
from sprocket.common.clock import Clock
from sprocket.metrics.declared import Kind, Metric, text
from sprocket.metrics.distribution import Distributions
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.routes import Handler, Result, Route

_BOUNDARIES_MS: Final = (10, 100, 1_000, 3_000, 5_000)
_TOPICS: Final = (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
_GROUPS: Final = (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)


class CreationTimes:
    """Times of both kinds, by outcome."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics = Distributions(_BOUNDARIES_MS)
        self._groups = Distributions(_BOUNDARIES_MS)

    def timed(self, routes: Iterable[Route]) -> list[Route]:
        """Return `routes`; the routes that create topics or groups also measure their time."""
        return [self._timed(route) for route in routes]

    def _timed(self, route: Route) -> Route:
        times = self._topics if route.code in _TOPICS else self._groups if route.code in _GROUPS else None
        if times is None or route.handle is None:
            return route
        return replace(route, handle=self._around(route.handle, times))

    def _around(self, handle: Handler, times: Distributions) -> Handler:
        async def timed(request: Request[Any]) -> Result:
            began, is_done = self._clock.monotonic(), False
            try:
                answer = handle(request)
                response = await answer if inspect.isawaitable(answer) else answer
                is_done = isinstance(response, Response) and response.code == ResponseCode.SUCCESS
            finally:
                status = "success" if is_done else "failure"
                # RocketMQ gives this label to topics alone.
                more = (_is_system(request),) if times is self._topics else ()
                times.add((status, *more), int((self._clock.monotonic() - began) * 1000))
            return response

        return timed

    def metrics(self) -> list[Metric]:
        """Return the metrics."""
        topics, groups = ("invocation_status", "is_system"), ("invocation_status",)
        return [
            Metric(
                f"rocketmq_{kind}_create_execution_time", Kind.HISTOGRAM, says, times.read, labels, "milliseconds"
            )
            for kind, says, times, labels in (
                ("topic", "time to create or change topics", self._topics, topics),
                ("consumer_group", "time to create or change groups", self._groups, groups),
            )
        ]  # fmt: skip


def _is_system(request: Request[Any]) -> str:
    return text(is_system_topic(getattr(request.header, "topic", "")))

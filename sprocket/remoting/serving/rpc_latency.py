"""Latency of requests, from the read that completed them to their response, by request and response code.

Source of name, labels and boundaries: RocketMQ 5.3.3, `RemotingMetricsManager`, `RemotingHelper.getRequestCodeDesc`.
"""

from collections.abc import Iterator
from typing import Final

from sprocket.metrics.declared import Kind, Metric, text
from sprocket.metrics.distribution import Distribution, Labels
from sprocket.remoting.codes import RequestCode, ResponseCode

_BOUNDARIES_MS: Final = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1_000.0, 2_000.0, 3_000.0)
_FIRST_MS: Final = _BOUNDARIES_MS[0]
# Requests that a server may hold until there is something to respond.
_HELD: Final = frozenset(
    {
        int(RequestCode.PULL_MESSAGE),
        int(RequestCode.LITE_PULL_MESSAGE),
        int(RequestCode.POP_MESSAGE),
        int(RequestCode.NOTIFICATION),
    }
)
_Key = tuple[int, int, bool, bool]


class RpcLatency:
    """Latencies of one server.  Requests that load shedding refuses are not among them."""

    def __init__(self) -> None:
        # By request code, response code, whether the request was held, and whether it was oneway.
        self._by_key: dict[_Key, Distribution] = {}

    # Written for speed: most responses take less than a millisecond.
    def note(self, code: int, response_code: int, seconds: float, count: int, was_later: bool, is_oneway: bool) -> None:
        """Count `count` responses; `was_later`: not in the turn of the loop in which the requests were read."""
        key = (code, response_code, was_later and code in _HELD, is_oneway)
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = Distribution(_BOUNDARIES_MS)
        milliseconds = seconds * 1000
        if milliseconds <= _FIRST_MS:
            found.counts[0] += count
            found.count += count
            found.total += milliseconds * count
        else:
            found.add(milliseconds, count)

    def metric(self) -> Metric:
        """Return the metric."""
        return Metric(
            "rocketmq_rpc_latency",
            Kind.HISTOGRAM,
            "time from the arrival of a request to its response",
            self._read,
            ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
            "milliseconds",
        )

    def _read(self) -> Iterator[tuple[Labels, Distribution]]:
        for (code, response_code, is_held, is_oneway), latencies in self._by_key.items():
            names = _name(RequestCode, code), _name(ResponseCode, response_code)
            yield ("remoting", *names, text(is_held), "oneway" if is_oneway else "success"), latencies


def _name(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    try:
        return codes(code).name.lower()
    except ValueError:
        return str(code)

"""Charts of the last hour."""

from collections.abc import Callable

from dashboard.page import Page, PageRoute, Visit
from dashboard.sampling.chart import Chart, begin_of, chart
from dashboard.sampling.history import History, Point
from sprocket.client.admin.at_once import check_rights


def charts_of(history: History, now_ms: int, interval_s: float) -> list[Chart]:
    """Return the charts of throughput and latency."""
    points = history.points()
    first_ms = min((found[0].time_ms for found in points.values()), default=now_ms)
    begin_ms = begin_of(first_ms, now_ms)

    def of(title: str, unit: str, value: Callable[[Point], float | None]) -> Chart:
        series = {name: [(point.time_ms, value(point)) for point in found] for name, found in points.items()}
        return chart(title, unit, series, begin_ms, now_ms, int(interval_s * 3000))

    return [
        of("Messages in", "per second", lambda point: point.put_per_s),
        of("Messages out", "per second", lambda point: point.got_per_s),
        of("Time of a write, 99 %", "ms", lambda point: point.put_p99_ms),
        of("Time of a write, 99.9 %", "ms", lambda point: point.put_p999_ms),
    ]


async def show(visit: Visit) -> Page:
    """Show all charts, if the visitor may read the figures of a broker."""
    info = await visit.admin.cluster_info()
    addresses = [address for data in info.broker_addr_table.values() for address in data.broker_addrs.values()]
    check_rights(await visit.at_once.each(addresses, visit.admin.broker_runtime_info))
    charts = charts_of(visit.history, visit.clock.wall_ms(), visit.settings.sample_interval_s)
    tables = {name: points[-20:][::-1] for name, points in visit.history.points().items()}
    values = {"charts": charts, "problem": visit.history.problem, "tables": tables}
    return Page("charts.html", values)


ROUTES = (PageRoute("/charts", show),)

"""The first page: is the cluster healthy, and how fast is it."""

from dashboard.asking.at_once import check_rights
from dashboard.asking.cluster import cluster_answers
from dashboard.page import Page, PageRoute, Visit
from dashboard.pages.charts import charts_of
from dashboard.views.cluster import cluster_map


async def show(visit: Visit) -> Page:
    """Show the cluster map."""
    answers = await cluster_answers(visit.admin, visit.at_once)
    check_rights(answers.runtime)
    now_ms = visit.clock.wall_ms()
    charts = charts_of(visit.history, now_ms, visit.settings.sample_interval_s)
    return Page(
        "cluster.html", {"map": cluster_map(answers, now_ms), "charts": charts, "problem": visit.history.problem}
    )


ROUTES = (PageRoute("/", show),)

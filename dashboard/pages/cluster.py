"""The first page: is the cluster healthy, and how fast is it."""

from dashboard.asking.cluster import cluster_answers
from dashboard.page import Page, PageRoute, Visit
from dashboard.pages.charts import charts_of
from dashboard.views.cluster import cluster_map
from sprocket.client.admin.at_once import check_rights


async def show(visit: Visit) -> Page:
    """Show the cluster map."""
    answers = await cluster_answers(visit.admin, visit.at_once)
    check_rights(answers.look.runtime)
    now_ms = visit.clock.wall_ms()
    visit.history.saw(answers.look.info, answers.look.runtime, now_ms)
    charts = charts_of(visit.history, now_ms, visit.settings.sample_interval_s)
    map_ = cluster_map(answers, visit.history.members, now_ms)
    return Page("cluster.html", {"map": map_, "charts": charts, "problem": visit.history.problem})


async def forget(visit: Visit) -> Page:
    """Forget a broker that was removed for good, until it answers again."""
    visit.history.forget(visit.needed("address"))
    return await show(visit)


ROUTES = (PageRoute("/", show), PageRoute("/forget", forget, changes=True))

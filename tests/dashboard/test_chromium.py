"""Each page in headless Chromium: no complaint, nothing wider than the screen, readable in light and dark."""

import os
from pathlib import Path
from urllib.parse import quote

import pytest

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.admin.group_admin import GroupAdmin
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.message.topic_names import dlq_topic
from sprocket.testing import Broker
from tests.dashboard.devtools import CHROMIUM, Tab, chromium
from tests.dashboard.rig import kill_messages, running
from tests.dashboard.scene import Scene, scene

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
PHONE, DESKTOP = 390, 1280
# Where pictures for docs/ go: SPROCKET_PICTURES=docs/images.
_PICTURES = os.environ.get("SPROCKET_PICTURES")
_PICTURED = {
    "cluster-desktop", "charts-desktop", "topics-desktop", "message-desktop", "dead-letters-desktop", "offsets-desktop",
    "group-desktop", "cluster-phone-dark", "group-phone-dark", "message-phone-dark",
}  # fmt: skip

# The luminance contrast of every text against what is behind it (WCAG 2.2, 1.4.3).
_CONTRASTS = """
(() => {
  const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const parse = (text) => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || node.closest("svg") || !node.getClientRects().length) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    const text = node.textContent.trim().slice(0, 30);
    if (contrast < 4.5) bad.push(`${node.tagName}.${node.className} ${text}: ${contrast.toFixed(2)}`);
  }
  return bad;
})()
"""
# Fields and buttons without a name for screen readers.
_NAMELESS = """
[...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a")]
  .filter((node) => !(node.labels && node.labels.length) && !node.getAttribute("aria-label"))
  .filter((node) => !node.textContent.trim())
  .map((node) => node.outerHTML)
"""


@pytest.fixture(scope="session")
def prepared(broker: Broker) -> Scene:
    return scene(broker)


def pages(made: Scene) -> dict[str, str]:
    return {
        "cluster": "/",
        "charts": "/charts",
        "topics": "/topics",
        "topic": "/topic?topic=Orders",
        "groups": "/groups",
        "group": "/group?group=billing",
        "find": "/messages?topic=Orders&newest=20",
        "message": f"/messages?topic=Orders&id={quote(made.message_id)}",
        "dead-letters": "/dead-letters?group=billing&preview=1",
        "send": "/send?topic=Orders",
        "offsets": "/offsets?group=billing&topic=Orders&to=start",
        "accounts": "/accounts",
        "schedules": "/schedules",
        "namespaces": "/namespaces",
        "quotas": "/quotas",
        "replication": "/replication",
        "login": "/login",
        "error": "/topic?topic=Nowhere",
    }


async def test_every_page_on_desktop_and_phone_in_light_and_dark(
    broker: Broker, prepared: Scene, tmp_path: Path
) -> None:
    async with running(broker.namesrv, sample_interval_s=1.0) as (dashboard, _), chromium(tmp_path) as tab:
        await prepared.work(broker, rounds=80 if _PICTURES else 2)
        for name, path in pages(prepared).items():
            tab.complaints.clear()
            await tab.open(dashboard.url.rstrip("/") + path)
            for width, is_dark in ((DESKTOP, False), (PHONE, True)):
                await tab.look(width=width, is_dark=is_dark)
                await check(tab, name, width)
                form = "desktop" if width == DESKTOP else "phone-dark"
                if _PICTURES and f"{name}-{form}" in _PICTURED:
                    height = min(1100 if width == DESKTOP else 1300, await tab.value("document.body.scrollHeight"))
                    await tab.picture(Path(_PICTURES) / f"dashboard-{name}-{form}.webp", height=height)
        assert all(url.startswith((dashboard.url, "about:", "data:")) for url in tab.requested), tab.requested


async def check(tab: Tab, name: str, width: int) -> None:
    where = f"{name} at {width}"
    complaints = [one for one in tab.complaints if name != "error" or "404" not in one]
    assert not complaints, (where, complaints)
    assert await tab.value("document.querySelectorAll('h1').length") == 1, where
    widest = await tab.value("document.documentElement.scrollWidth")
    assert widest <= width, (where, widest)
    assert await tab.value(_CONTRASTS) == [], where
    assert await tab.value(_NAMELESS) == [], where
    tables = "[...document.querySelectorAll('table')].every((table) => table.closest('.scroll[tabindex]'))"
    assert await tab.value(tables), where
    if width == PHONE:
        # What tells the rows of a list apart is on the screen, not beyond the edge of a table.
        cells = "[...document.querySelectorAll('.list td')]"
        assert await tab.value(f"{cells}.every((td) => td.getBoundingClientRect().right <= innerWidth)"), where


async def test_redrive_in_the_browser(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("Clicked", 1)
    broker.create_topic(dlq_topic("clicked"), 1)
    await kill_messages(broker, "clicked", "Clicked", 3)
    async with running(broker.namesrv) as (dashboard, visitor), chromium(tmp_path) as tab:
        await tab.open(f"{dashboard.url}dead-letters?group=clicked")
        await tab.click("button[name=preview]")
        assert "would send 3 of 3" in await tab.value("document.body.innerText")
        # The question before the change: yes.
        await tab.value("window.confirm = () => true")
        await tab.click("button.danger")
        assert "Sent 3 of 3" in await tab.value("document.body.innerText")
        assert "3 messages of Clicked" in (await visitor.get("/messages", topic="Clicked", newest="9")).text


async def test_refresh_takes_new_figures_without_a_reload(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("Fresh", 1)
    async with AdminClient([broker.namesrv]) as admin:
        await admin.create_group(broker.address, SubscriptionGroupConfig("fresh"))
        await GroupAdmin(admin).commit(broker.address, "fresh", "Fresh", 0, 0)
    async with running(broker.namesrv) as (dashboard, visitor), chromium(tmp_path) as tab:
        await tab.open(f"{dashboard.url}group?group=fresh")
        await tab.value("window.kept = 1")
        await tab.value("window.setTimeout = ((real) => (work) => real(work, 50))(window.setTimeout)")
        await visitor.post("/send/now", topic="Fresh", body="x")
        await tab.value("document.querySelector('.refresh input').click()")
        waits = """
            new Promise((done) => {
              const look = () => document.body.innerText.includes("1 messages wait") ? done(window.kept)
                : requestAnimationFrame(look);
              look();
            })"""
        assert await tab.value(waits) == 1

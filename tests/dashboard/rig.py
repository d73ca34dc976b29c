"""A dashboard on a free port, and a visitor with cookies."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from html import unescape
from typing import NamedTuple

from aiohttp import ClientSession, CookieJar

from dashboard.server import Dashboard
from dashboard.settings import DashboardSettings
from sprocket.client.admin.admin_client import AdminClient
from sprocket.common.clock import SystemClock
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.send import SendMessageRequestHeaderV2
from sprocket.remoting.message.properties import encode
from sprocket.remoting.message.topic_names import dlq_topic
from sprocket.testing import Broker

_TOKEN = re.compile(r'name="token" value="([0-9a-f]{64})"')
_TAG = re.compile(r"<[^>]*>")


class Shown(NamedTuple):
    """A page: its status, its HTML, and the words of it without tags."""

    status: int
    html: str
    location: str

    @property
    def text(self) -> str:
        return " ".join(unescape(_TAG.sub(" ", self.html)).split())


class Visitor:
    """A browser without scripts."""

    def __init__(self, http: ClientSession, url: str) -> None:
        self.http = http
        self.url = url.rstrip("/")

    async def get(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> Shown:
        async with self.http.get(self.url + path, params=fields, headers=headers, allow_redirects=False) as answer:
            return Shown(answer.status, await answer.text(), answer.headers.get("Location", ""))

    async def token(self, path: str = "/login") -> str:
        found = _TOKEN.search((await self.get(path)).html)
        assert found, path
        return found[1]

    async def post(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> Shown:
        """Post a form with the visitor's token, unless `token` is given."""
        fields = {"token": await self.token()} | fields
        async with self.http.post(self.url + path, data=fields, headers=headers, allow_redirects=False) as answer:
            return Shown(answer.status, await answer.text(), answer.headers.get("Location", ""))

    async def log_in(self, user: str, secret: str) -> Shown:
        return await self.post("/login", user=user, secret=secret)


async def kill_messages(broker: Broker, group: str, topic: str, count: int) -> None:
    """Store dead letters of `group` that came from `topic`; all but the first have the tag a."""
    async with AdminClient([broker.namesrv]) as admin:
        for n in range(count):
            carried = {"RETRY_TOPIC": topic, "TAGS": "a" if n else "b", "UNIQ_KEY": f"{n:032X}", "KEYS": f"order-{n}"}
            header = SendMessageRequestHeaderV2(
                producer_group="p", topic=dlq_topic(group), default_topic="TBW102", default_topic_queue_nums=4,
                queue_id=0, sys_flag=0, born_timestamp=0, flag=0, properties=encode(carried), reconsume_times=16,
                unit_mode=False, batch=False,
            )  # fmt: skip
            await admin.ask(broker.address, RequestCode.SEND_MESSAGE_V2, header, b"dead %d" % n)


@asynccontextmanager
async def running(namesrv: str, **settings: object) -> AsyncIterator[tuple[Dashboard, Visitor]]:
    base = DashboardSettings(name_servers=(namesrv,), port=0, allow_changes=True, logins_burst=1000)
    dashboard = Dashboard(replace(base, **settings), SystemClock())  # type: ignore[arg-type]
    await dashboard.start()
    try:
        async with visitor(dashboard) as first:
            yield dashboard, first
    finally:
        await dashboard.stop()


@asynccontextmanager
async def visitor(dashboard: Dashboard) -> AsyncIterator[Visitor]:
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
        yield Visitor(http, dashboard.url)

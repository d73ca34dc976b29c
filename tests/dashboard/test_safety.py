"""What a dashboard refuses, and that it escapes what comes from the network."""

import asyncio
import zlib
from urllib.parse import quote

import pytest

from sprocket import Message, Producer
from sprocket.client.admin.admin_client import AdminClient
from sprocket.remoting.bodies.registration import RegisterBrokerBody, TopicConfigAndMapping
from sprocket.remoting.bodies.topic import DataVersion, TopicConfig
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.headers.namesrv import RegisterBrokerRequestHeader
from sprocket.testing import Broker
from tests.dashboard.rig import running, visitor

_SCRIPT = "<script>alert(1)</script>"
_BREAKOUT = "\"'><img src=x onerror=alert(1)>"


def is_harmless(html: str) -> bool:
    return "<script>alert" not in html and "<img src=x" not in html and "onerror=alert(1)>" not in html


async def test_bodies_keys_tags_and_properties_are_escaped(broker: Broker) -> None:
    broker.create_topic("Hostile", 1)
    key, tag = _SCRIPT.replace(" ", ""), "<b>tag</b>"
    message = Message("Hostile", (_SCRIPT + _BREAKOUT).encode(), keys=[key], tags=tag, properties={"p": _BREAKOUT})
    async with Producer("p", broker.namesrv) as producer:
        sent = await producer.send(message)
    async with running(broker.namesrv) as (_, visitor):
        pages = [
            await visitor.get("/messages", topic="Hostile", newest="3"),
            await visitor.get("/messages", topic="Hostile", key=key),
            await visitor.get("/messages", topic="Hostile", id=sent.message_id),
        ]
    for page in pages:
        assert page.status == 200 and is_harmless(page.html) and "<b>tag" not in page.html
        assert "&lt;script&gt;alert(1)" in page.html


@pytest.mark.parametrize(
    "path", ["/topics?name=", "/topic?topic=", "/groups?name=", "/group?group=", "/messages?topic=", "/messages?key=",
             "/dead-letters?group=", "/offsets?group=g&topic=", "/send?topic=", "/login?next=", "/topics?kind=",
             "/schedules?part=", "/quotas?part=", "/quotas?edit=", "/replication?part=",
             "/namespaces?part=", "/namespaces?edit="],
)  # fmt: skip
async def test_fields_of_addresses_are_escaped(broker: Broker, path: str) -> None:
    async with (
        running(broker.namesrv) as (_, visitor),
        visitor.http.get(visitor.url + path + quote(_BREAKOUT + _SCRIPT)) as answer,
    ):
        html = await answer.text()
        policy = answer.headers["Content-Security-Policy"]
    assert is_harmless(html)
    assert "script-src 'self'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy


async def test_forms_need_the_visitors_own_token(broker: Broker) -> None:
    broker.create_topic("Forged", 1)
    form = {"topic": "Forged", "body": "x"}
    async with running(broker.namesrv) as (dashboard, mine):
        async with visitor(dashboard) as stranger:
            foreign = await stranger.token()
        for token in ("", "0" * 64, foreign, "é"):
            refused = await mine.post("/send/now", token=token, **form)
            assert refused.status == 403 and "form was refused" in refused.text
        elsewhere = await mine.post("/send/now", {"Origin": "http://evil.example"}, **form)
        assert elsewhere.status == 403
        none = await mine.get("/messages", topic="Forged", newest="1")
        assert "Nothing was found" in none.text
        own = await mine.post("/send/now", {"Origin": mine.url}, **form)
        assert own.status == 200 and "SEND_OK" in own.text


async def test_read_only_shows_no_forms_and_refuses_posts(broker: Broker) -> None:
    broker.create_topic("Kept", 1)
    async with running(broker.namesrv, allow_changes=False) as (_, visitor):
        page = await visitor.get("/offsets", group="g", topic="Kept", to="end")
        assert 'method="post"' not in page.html and "read-only" in page.text
        for path in (
            "/send/now",
            "/offsets/reset",
            "/dead-letters/redrive",
            "/schedules/delete",
            "/schedules/pause",
            "/quotas/set",
            "/quotas/delete",
            "/namespaces/set",
            "/namespaces/delete",
            "/accounts/create",
            "/accounts/delete",
        ):
            refused = await visitor.post(path, topic="Kept", group="g", to="end", body="x", user="u")
            assert refused.status == 403 and "--allow-changes" in refused.text, path
        none = await visitor.get("/messages", topic="Kept", newest="1")
        assert "Nothing was found" in none.text


async def test_changes_are_not_made_by_get(broker: Broker) -> None:
    async with running(broker.namesrv) as (_, visitor):
        assert (await visitor.get("/send/now", topic="Kept", body="x")).status == 405


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("127.0.0.1:1", True), ("localhost", True), ("[::1]:8080", True), ("10.0.0.7", True), ("ops.example:80", True),
        ("evil.example", False), ("127.0.0.1.evil.example", False), ("localhost.evil.example", False),
        ("a@127.0.0.1", False), ("", False),
    ],
)  # fmt: skip
async def test_host_header(broker: Broker, host: str, is_allowed: bool) -> None:
    async with running(broker.namesrv, allowed_hosts=("ops.example",)) as (_, visitor):
        status = (await visitor.get("/login", {"Host": host})).status
    assert (status == 200) is is_allowed


async def test_large_and_odd_forms_are_refused(broker: Broker) -> None:
    async with running(broker.namesrv, max_form_bytes=10_000) as (_, visitor):
        large = await visitor.post("/send/now", topic="T", body="x" * 20_000)
        assert large.status == 413 and "10000 bytes" in large.text
        many = await visitor.post("/send/now", **{f"f{n}": "" for n in range(60)})
        assert many.status == 400
        async with visitor.http.post(visitor.url + "/send/now", json={"topic": "T"}) as answer:
            assert answer.status == 415
        long = await visitor.get("/topics", name="x" * 2000)
        assert long.status == 400 and "allowed are 1024" in long.text


async def test_one_dead_broker_breaks_no_page(broker: Broker) -> None:
    """A broker is registered with a topic and a port where nothing listens."""
    broker.create_topic("Alive", 1)
    async with AdminClient([broker.namesrv]) as admin:
        # A name server ignores a stranger with a single topic.
        table = {name: TopicConfig(name, 2, 2) for name in ("Alive", "Other")}
        topics = TopicConfigAndMapping(table, DataVersion(1, 1, 1))
        body = RegisterBrokerBody(topics).encode(compressed=False)
        header = RegisterBrokerRequestHeader(
            broker_name="gone", broker_addr="127.0.0.1:1", cluster_name="DefaultCluster", ha_server_addr="127.0.0.1:2",
            broker_id=0, body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )  # fmt: skip
        await admin.ask(broker.namesrv, RequestCode.REGISTER_BROKER, header, body)
        async with running(broker.namesrv) as (_, visitor):
            page = await visitor.get("/")
            assert (
                page.status == 200 and "Sends are NOT confirmed by gone; they are confirmed by 1 of 2" in page.text
            ), page.text
            assert "gone: sends fail: its master 127.0.0.1:1 does not answer." in page.text
            assert f"answers {broker.address}" in page.text
            for path, fields in (
                ("/topics", {"name": "Alive"}), ("/topic", {"topic": "Alive"}), ("/groups", {}),
                ("/group", {"group": "g"}), ("/charts", {}), ("/accounts", {}), ("/schedules", {}),
                ("/namespaces", {}), ("/quotas", {}), ("/replication", {}),
                ("/messages", {"topic": "Alive", "newest": "5"}),
                ("/offsets", {"group": "g", "topic": "Alive", "to": "end"}),
            ):  # fmt: skip
                page = await visitor.get(path, **fields)
                assert page.status == 200, (path, page.text)
                assert path == "/charts" or "gone" in page.text, path


async def test_no_name_server_is_a_page_that_says_so() -> None:
    async with running("127.0.0.1:1") as (_, visitor):
        pages = await asyncio.gather(*(visitor.get(path) for path in ("/", "/topics", "/groups", "/charts")))
    for page in pages:
        assert page.status == 502 and "127.0.0.1:1" in page.text and "Check that the server runs" in page.text

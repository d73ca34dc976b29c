"""The programs of docs/client.md run as they stand there."""

import asyncio
import importlib
import re
import textwrap
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import sprocket
import sprocket.sync
from sprocket import ConsumeFrom, Message, Producer, ReceivedMessage
from sprocket.testing import Broker

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def snippet(words: str) -> str:
    (found,) = [text for text in SNIPPETS if words in text]
    return found


async def test_first_message(broker: Broker) -> None:
    made = await run(snippet("import sprocket\n").replace("127.0.0.1:9876", broker.namesrv))
    assert made["message"].is_settled  # type: ignore[attr-defined]


async def test_recipes(broker: Broker) -> None:
    begin = PAGE.index("## Recipes")
    recipes = re.findall(r"^```python\n(.*?)^```", PAGE[begin : PAGE.index("## Coming from")], re.DOTALL | re.MULTILINE)
    assert len(recipes) == 8
    made: dict[str, object] = {}
    async with sprocket.connect(broker.namesrv) as mq:
        for code in [*recipes, snippet("ConsumerListener")]:
            made |= await asyncio.wait_for(run(code, mq=mq, dataclass=dataclass), 40)
    assert made["reply"].body == b"3"  # type: ignore[attr-defined]
    assert made["order"].item == "shoes"  # type: ignore[attr-defined]


async def run(code: str, **names: object) -> dict[str, object]:
    """Run `code`, which may await, with `names`; its own names are returned."""
    space: dict[str, object] = {name: getattr(sprocket, name) for name in sprocket.__all__}
    space |= {"asyncio": asyncio, "UTC": UTC, "datetime": datetime, "timedelta": timedelta} | names
    source = "async def program():\n" + textwrap.indent(code, "    ") + "\n    return locals()\n"
    exec(compile(source, "docs/client.md", "exec"), space)
    return await space["program"]()  # type: ignore[operator, no-any-return]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> "AsyncIterator[Broker]":
    with Broker(tmp_path_factory.mktemp("pages"), properties={"recallMessageEnable": "true"}) as running:
        for topic in (
            "Flights",
            "Jobs",
            "Readings",
            "Reminders",
            "Invoices",
            "Claimed",
            "Orders",
            "Steps",
            "Sums",
            "TypedOrders",
        ):
            running.create_topic(topic)
        yield running  # type: ignore[misc]


def test_every_snippet_compiles() -> None:
    assert len(SNIPPETS) >= 8
    for text in SNIPPETS:
        compile("async def program():\n" + textwrap.indent(text, "    "), "docs/client.md", "exec")


async def test_lite_topics_and_sessions(broker: Broker) -> None:
    async with sprocket.connect(broker.namesrv) as mq:
        made = await asyncio.wait_for(run(snippet('"chat-43"'), mq=mq), 40)
        assert made["message"].body == b"hello"  # type: ignore[attr-defined]
        made = await asyncio.wait_for(run(snippet('mq.session("user-7"'), mq=mq), 40)
        assert made["answer"].body == b"noon"  # type: ignore[attr-defined]


async def test_auto_batch(broker: Broker) -> None:
    made = await run(snippet("auto_batch=True"), namesrv=broker.namesrv)
    assert len(made["results"]) == 100  # type: ignore[arg-type]


async def test_deduplication(broker: Broker) -> None:
    seen: list[bytes] = []
    async with Producer("g", broker.namesrv) as producer:
        await producer.send(Message("Invoices", b"...", unique_key="invoice-4711"), sharding_key="invoice-4711")
        consumer = sprocket.Consumer("invoices", ["Invoices"], broker.namesrv, consume_from=ConsumeFrom.FIRST)
        async with consumer:

            def handler(message: ReceivedMessage) -> None:
                seen.append(message.body)

            program = run(snippet("Deduplicator()"), producer=producer, consumer=consumer, handler=handler)
            task = asyncio.create_task(program)
            while sum(consumer.committed("Invoices").values()) < 2:
                await asyncio.sleep(0.02)
        await task
    assert seen == [b"..."]


async def test_deduplication_by_claims_in_a_file(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[bytes] = []
    async with Producer("g", broker.namesrv) as producer:
        for _ in range(2):
            await producer.send(Message("Claimed", b"...", unique_key="invoice-4711"))
    async with sprocket.Consumer("claiming", ["Claimed"], broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:

        def handler(message: ReceivedMessage) -> None:
            seen.append(message.body)

        task = asyncio.create_task(run(snippet("async with SqliteClaims("), consumer=consumer, handler=handler))
        while sum(consumer.committed("Claimed").values()) < 2:
            await asyncio.sleep(0.02)
    await task
    assert seen == [b"..."]


async def test_handlers_of_faststream() -> None:
    pytest.importorskip("faststream", reason="faststream is not installed: pip install 'sprocket-mq[faststream]'")
    made = await run(snippet("FastStream(shop)"))
    # FastStream reads the source of its caller, which a text has not.
    with pytest.warns(RuntimeWarning, match="AST parsing"):
        await run(snippet("TestSprocketBroker(shop)"), shop=made["shop"], bill=made["bill"])
    batches = await run(snippet('publisher("Loaded"'), shop=made["shop"])
    contrib = importlib.import_module("sprocket.contrib.faststream")
    async with contrib.TestSprocketBroker(made["shop"]) as memory:
        await memory.publish_batch({"number": 1}, {"number": 2}, topic="Rows")
        batches["load"].mock.assert_called_once_with([{"number": 1}, {"number": 2}])  # type: ignore[attr-defined]
    pytest.importorskip("opentelemetry.sdk", reason="the middleware needs pip install 'sprocket-mq[metrics]'")
    traced = await run(snippet("SprocketTelemetryMiddleware()"), SprocketBroker=contrib.SprocketBroker)
    assert len(traced["traced"].middlewares) == 1  # type: ignore[attr-defined]


async def test_without_an_event_loop(broker: Broker) -> None:
    code = snippet('mq.consumer("sync-readers"')
    made = await asyncio.to_thread(lambda: exec(code, space := {"namesrv": broker.namesrv}) or space)
    assert "Flights" in made["topics"]


async def test_deduplication_without_an_event_loop(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[bytes] = []
    async with Producer("g", broker.namesrv) as producer:
        for _ in range(2):
            await producer.send(Message("Claimed", b"sync", unique_key="invoice-1"))
    code = snippet("sync.Deduplicator(").replace('"Claimed")', '"Claimed", consume_from=sprocket.ConsumeFrom.FIRST)')
    space: dict[str, Any] = {"namesrv": broker.namesrv, "sprocket": sprocket}

    def handler(message: sprocket.sync.ReceivedMessage) -> None:
        seen.append(message.body)

    space["handler"] = handler
    program = asyncio.create_task(asyncio.to_thread(exec, code, space))
    while "deduplicator" not in space or space["deduplicator"].duplicates == 0:
        await asyncio.sleep(0.02)
    space["consumer"].stop()
    await program
    assert seen.count(b"sync") == 1


async def test_administration(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    made = await run(snippet("admin.create_group("), namesrv=broker.namesrv)
    assert made["broker"] == broker.address
    assert capsys.readouterr().out == "8388608\n"


async def test_pop(broker: Broker) -> None:
    async with Producer("g", broker.namesrv) as producer:
        await producer.send_batch([Message("Jobs", b"%d" % number) for number in range(5)])

        async def send_one_more() -> None:
            await asyncio.sleep(1)
            await producer.send(Message("Jobs", b"one more"))

        later = asyncio.create_task(send_one_more())
        code = snippet("await consumer.receive(16").replace("namesrv)", "namesrv, consume_from=ConsumeFrom.FIRST)")
        made = await run(code, namesrv=broker.namesrv)
        await later
    assert made["message"].body == b"one more"  # type: ignore[attr-defined]
    assert len(made["messages"]) == 5  # type: ignore[arg-type]


async def test_later(broker: Broker) -> None:
    async with Producer("g", broker.namesrv) as producer:
        code = snippet("recall_handle").replace(
            "datetime(2027, 1, 1, tzinfo=UTC)", "datetime.now(UTC) + timedelta(hours=1)"
        )
        made = await run(code, producer=producer)
    assert made["sent"].recall_handle  # type: ignore[attr-defined]

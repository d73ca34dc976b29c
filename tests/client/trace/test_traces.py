"""Traces from the producer's call to the consumer's acknowledgement, through a broker, and out to other tools."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from google.protobuf.json_format import Parse
from opentelemetry import trace as otel
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.consumer import Consumer
from sprocket.client.message import Message, ReceivedMessage
from sprocket.client.orderly_consumer import OrderlyConsumer
from sprocket.client.producer import Producer
from sprocket.client.rebalance.start_offset import ConsumeFrom
from sprocket.client.simple_consumer import SimpleConsumer
from sprocket.client.trace.encoding import MessageType, TraceKind
from sprocket.client.trace.lookup import Found, TraceLookup
from sprocket.client.trace.recorder import TraceSettings
from sprocket.client.transaction import TransactionProducer, TransactionState
from sprocket.testing import Broker
from sprocket_cli.main import main

ALL = TraceSettings()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with the trace topic."""
    with Broker(tmp_path_factory.mktemp("traces"), properties={"traceTopicEnable": "true"}) as running:
        yield running


async def traces_of(broker: Broker, message_id: str, count: int) -> list[Found]:
    """Wait until the index has `count` records of a message."""
    async with AdminClient(broker.namesrv) as admin, asyncio.timeout(30):
        while True:
            found = await TraceLookup(admin).of_message(message_id)
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)


async def test_from_the_send_to_the_acknowledgement(broker: Broker) -> None:
    broker.create_topic("Traced", 2)
    async with Producer("P", broker.namesrv, trace=ALL) as producer:
        sent = await producer.send(Message("Traced", b"body", tags="TagA", keys=["k1", "k2"]))
    async with Consumer("G", ["Traced"], broker.namesrv, consume_from=ConsumeFrom.FIRST, trace=ALL) as consumer:
        message = await anext(consumer)
        await asyncio.sleep(0.05)
        await consumer.ack(message)
    found = await traces_of(broker, sent.message_id, 3)
    assert [record.kind for record, _ in found] == [TraceKind.PUB, TraceKind.SUB_BEFORE, TraceKind.SUB_AFTER]
    assert {host for _, host in found} == {"127.0.0.1"}
    pub, before, after = (record for record, _ in found)
    assert (pub.group, pub.topic, pub.tags, pub.keys, pub.body_bytes) == ("P", "Traced", "TagA", "k1 k2", 4)
    assert pub.offset_message_id == sent.offset_message_id
    assert pub.message_type is MessageType.NORMAL
    assert (before.group, before.request_id) == (after.group, after.request_id)
    assert after.is_success
    assert 40 <= after.cost_ms <= 5000
    assert await traces_of(broker, "k1", 0) == [], "a key finds the trace message, but no record is about it"


async def test_rejected_and_orderly_and_popped(broker: Broker) -> None:
    broker.create_topic("Kinds", 1)
    async with Producer("P", broker.namesrv) as producer:
        sent = await producer.send(Message("Kinds", b"body"))
    async with Consumer("GNack", ["Kinds"], broker.namesrv, consume_from=ConsumeFrom.FIRST, trace=ALL) as consumer:
        await consumer.nack(await anext(consumer))
    async with SimpleConsumer("GPop", ["Kinds"], broker.namesrv, consume_from=ConsumeFrom.FIRST, trace=ALL) as simple:
        for popped in await simple.receive(1):
            await simple.ack(popped)
    async with OrderlyConsumer(
        "GOrder", ["Kinds"], broker.namesrv, consume_from=ConsumeFrom.FIRST, trace=ALL
    ) as orderly:
        handled = asyncio.Event()
        running = asyncio.create_task(orderly.run(lambda _: handled.set()))
        await asyncio.wait_for(handled.wait(), 30)
    await running
    found = await traces_of(broker, sent.message_id, 6)
    outcomes = {
        record.group: (record.is_success, record.context_code)
        for record, _ in found
        if record.kind is TraceKind.SUB_AFTER
    }
    assert outcomes == {"GNack": (False, 4), "GPop": (True, 0), "GOrder": (True, 0)}


async def test_transaction_and_recall(broker: Broker) -> None:
    broker.create_topic("Bookings", 1)

    async def commit(*_: object) -> TransactionState:
        return TransactionState.COMMIT

    async with TransactionProducer("PT", broker.namesrv, checker=commit, trace=ALL) as producer:
        result = await producer.send_in_transaction(Message("Bookings", b"seat"), commit)
    half, end = (record for record, _ in await traces_of(broker, result.message_id, 2))
    assert (half.kind, half.message_type) == (TraceKind.PUB, MessageType.HALF)
    assert (end.kind, end.transaction_state, end.is_from_check) == (TraceKind.END_TRANSACTION, "COMMIT_MESSAGE", False)


async def test_nothing_is_traced_by_default_or_outside_the_sample(broker: Broker) -> None:
    broker.create_topic("Quiet", 1)
    async with AdminClient(broker.namesrv) as admin:
        before = [one async for one in TraceLookup(admin).between(None, None)]
        for trace in (None, TraceSettings(sample=0)):
            async with Producer("P", broker.namesrv, trace=trace) as producer:
                await producer.send(Message("Quiet", b"body"))
        assert [one async for one in TraceLookup(admin).between(None, None)] == before


async def test_own_topic_and_a_broken_one(broker: Broker) -> None:
    """A trace topic that does not exist hinders no send."""
    broker.create_topic("OwnTraces", 1)
    broker.create_topic("Work", 1)
    async with Producer("P", broker.namesrv, trace=TraceSettings(topic="OwnTraces")) as producer:
        sent = await producer.send(Message("Work", b"body"))
    async with AdminClient(broker.namesrv) as admin:
        records = [record async for record, _ in TraceLookup(admin, "OwnTraces").between(None, None)]
    assert [record.message_id for record in records] == [sent.message_id]


async def test_batch_has_a_record_for_each_message(broker: Broker) -> None:
    broker.create_topic("Batches", 1)
    async with Producer("P", broker.namesrv, trace=ALL) as producer:
        sent = await producer.send_batch([Message("Batches", b"one"), Message("Batches", b"two")])
    for message_id in sent.message_id.split(","):
        assert len(await traces_of(broker, message_id, 1)) == 1


# Spans


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    otel.set_tracer_provider(provider)
    return exporter


async def test_spans_share_one_trace(broker: Broker, spans: InMemorySpanExporter) -> None:
    broker.create_topic("Spans", 1)
    settings = TraceSettings(spans=True, sample=0)
    tracer = otel.get_tracer("application")
    async with Producer("P", broker.namesrv, trace=settings) as producer:
        with tracer.start_as_current_span("request"):
            await producer.send(Message("Spans", b"body"))

    def handle(message: ReceivedMessage) -> None:
        assert message.properties["traceparent"].startswith("00-")
        with tracer.start_as_current_span("work"):
            done.set()

    done = asyncio.Event()
    async with Consumer("GS", ["Spans"], broker.namesrv, consume_from=ConsumeFrom.FIRST, trace=settings) as consumer:
        running = asyncio.create_task(consumer.run(handle))
        await asyncio.wait_for(done.wait(), 30)
        await asyncio.sleep(0.1)
    await running
    finished = {span.name: span for span in spans.get_finished_spans()}
    names = ["request", "send Spans", "receive Spans", "process Spans", "work"]
    assert sorted(finished) == sorted(names)
    assert len({span.context.trace_id for span in finished.values() if span.context is not None}) == 1
    for parent, child in pairwise(names):
        own, above = finished[child].parent, finished[parent].context
        assert own is not None
        assert above is not None
        assert own.span_id == above.span_id, child


# Export


def test_export_and_show(broker: Broker, tmp_path: Path) -> None:
    async def work() -> str:
        broker.create_topic("Exported", 1)
        async with Producer("PX", broker.namesrv, trace=ALL) as producer:
            sent = await producer.send(Message("Exported", b"body", keys="k"))
        async with Consumer("GX", ["Exported"], broker.namesrv, consume_from=ConsumeFrom.FIRST, trace=ALL) as consumer:
            await consumer.ack(await anext(consumer))
        await traces_of(broker, sent.message_id, 3)
        return sent.message_id

    message_id = asyncio.run(work())

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["trace", *arguments, "-n", broker.namesrv], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    shown = run("show", message_id).splitlines()
    assert [line.split(" ms ")[1].split()[0] for line in shown] == ["Pub", "SubBefore", "SubAfter"]
    listed = [json.loads(line) for line in run("export").splitlines()]
    own = [record for record in listed if record["messageId"] == message_id]
    assert Counter(record["type"] for record in own) == {"Pub": 1, "SubBefore": 1, "SubAfter": 1}

    requests = [Parse(line, ExportTraceServiceRequest()) for line in run("export", "-f", "otlp").splitlines()]
    found = [span for one in requests for span in one.resource_spans[0].scope_spans[0].spans]
    of_message = {
        span.name: span
        for span in found
        if any(one.key == "messaging.message.id" and one.value.string_value == message_id for one in span.attributes)
    }
    assert set(of_message) == {"send Exported", "process"}
    assert of_message["process"].parent_span_id == of_message["send Exported"].span_id
    assert of_message["process"].trace_id == of_message["send Exported"].trace_id

    target = tmp_path / "bulk.ndjson"
    run("export", "-f", "elasticsearch", "-o", str(target), "--index", "traces")
    bulk = [json.loads(line) for line in target.read_text().splitlines()]
    actions, documents = bulk[::2], bulk[1::2]
    assert {action["index"]["_index"] for action in actions} == {"traces"}
    assert len({action["index"]["_id"] for action in actions}) == len(documents) == len(listed)
    for document in documents:
        assert datetime.fromisoformat(document["@timestamp"]).timestamp() == document["timeMs"] / 1000


def test_unknown_message(broker: Broker) -> None:
    done = CliRunner().invoke(main, ["trace", "show", "NONE", "-n", broker.namesrv])
    assert "no trace" in done.output

"""The recorder: samples, batches, and never makes anyone wait."""

import asyncio
import logging

import pytest

from sprocket.client.errors import ClientError, IllegalArgument
from sprocket.client.message import Message
from sprocket.client.trace.encoding import TraceKind, TraceRecord, decode
from sprocket.client.trace.recorder import TraceRecorder, TraceSettings


def record(number: int = 0) -> TraceRecord:
    return TraceRecord(kind=TraceKind.PUB, message_id=f"ID{number}", topic="T")


class Sent:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.error: ClientError | None = None

    async def send(self, message: Message) -> None:
        if self.error is not None:
            raise self.error
        self.messages.append(message)


def ids(message: Message) -> list[str]:
    return [one.message_id for one in decode(message.body.decode())]


async def test_twenty_records_make_a_message_and_its_keys_are_their_ids() -> None:
    sent = Sent()
    recorder = TraceRecorder(TraceSettings(topic="Traces"), sent.send)
    for number in range(25):
        recorder.add(record(number))
    await recorder.flush()
    assert [len(ids(message)) for message in sent.messages] == [20, 5]
    assert [message.topic for message in sent.messages] == ["Traces", "Traces"]
    assert sent.messages[1].keys == " ".join(f"ID{number}" for number in range(20, 25))


async def test_full_batch_is_sent_at_once() -> None:
    sent = Sent()
    recorder = TraceRecorder(TraceSettings(), sent.send)
    running = asyncio.create_task(recorder.run())
    for number in range(20):
        recorder.add(record(number))
    async with asyncio.timeout(60):
        while not sent.messages:
            await asyncio.sleep(0)
    running.cancel()


async def test_too_many_records_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    sent = Sent()
    recorder = TraceRecorder(TraceSettings(), sent.send)
    for number in range(3000):
        recorder.add(record(number))
    await recorder.flush()
    assert sum(len(ids(message)) for message in sent.messages) == 2048
    assert "count=952" in caplog.text


async def test_failure_is_said_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    sent = Sent()
    recorder = TraceRecorder(TraceSettings(), sent.send)
    with caplog.at_level(logging.INFO, logger="sprocket.client.trace"):
        sent.error = ClientError("no such topic")
        for _ in range(3):
            recorder.add(record())
            await recorder.flush()
        sent.error = None
        recorder.add(record())
        await recorder.close()
    assert caplog.text.count("traces_not_sent") == 1
    assert caplog.text.count("traces_sent_again") == 1
    assert len(sent.messages) == 1


def test_sample_chooses_by_the_message_id() -> None:
    whole, half, none = (TraceRecorder(TraceSettings(sample=share), Sent().send) for share in (1, 0.5, 0))
    names = [f"ID{number}" for number in range(2000)]
    assert all(whole.is_sampled(name) for name in names)
    assert not any(none.is_sampled(name) for name in names)
    chosen = [name for name in names if half.is_sampled(name)]
    assert 900 < len(chosen) < 1100
    assert chosen == [name for name in names if TraceRecorder(TraceSettings(sample=0.5), Sent().send).is_sampled(name)]


@pytest.mark.parametrize("changes", [{"sample": 1.5}, {"sample": True}, {"topic": "no spaces"}, {"spans": 1}])
def test_wrong_settings(changes: dict[str, object]) -> None:
    with pytest.raises((IllegalArgument, ClientError)):
        TraceSettings(**changes)  # type: ignore[arg-type]

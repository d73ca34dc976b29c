"""Random pops, acknowledgements, changes, pauses, stops and crashes against a model.

A message is acknowledged, or comes again when its time is over; it is never lost, and never handed out twice at a time.
"""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from broker.out.other_brokers import OtherBrokers
from broker.processor.pop.pop_service import PopService
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Buffer, ReceivedResponse, Request, Response
from sprocket.remoting.frames import encode_response
from sprocket.remoting.framing import JSON
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.pop import AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader
from tests.broker.pop.revive_rig import ReviveRig
from tests.broker.pop.rig import Message, changed, messages_of, pop_header
from tests.broker.rig import GROUP
from tests.clock import ManualClock

# Longer than any invisible time and what the wheel and the readers add.
_SETTLED_S = 30.0


class _Channel:
    """Channel that keeps the responses."""

    peer = ("127.0.0.1", 4711)
    id = 1
    is_closed = False

    def __init__(self) -> None:
        self.answers: list[ReceivedResponse] = []

    def answer_run(self, requests: list[Request[Any]], frames: bytes, code: int = 0) -> None:
        for request in requests:
            request.is_answered = 1
        self._keep(frames)

    def answer(self, request: Request[Any], *buffers: Buffer, code: int = 0) -> None:
        assert not request.is_answered
        self.answer_run([request], b"".join(buffers))

    def _keep(self, frame: bytes) -> None:
        while frame:
            size, header_bytes = int.from_bytes(frame[:4], "big"), int.from_bytes(frame[5:8], "big")
            header = msgspec.json.decode(frame[8 : 8 + header_bytes])
            body = frame[8 + header_bytes : 4 + size]
            self.answers.append(
                ReceivedResponse(
                    code=header["code"], opaque=header["opaque"], remark=header.get("remark"),
                    ext_fields=header.get("extFields", {}), body=body,
                )
            )  # fmt: skip
            frame = frame[4 + size :]

    def reply(self, request: Request[Any], response: Response) -> None:
        self.answer(request, *encode_response(response, request.opaque, request.serialization))


class PopRig(ReviveRig):
    """The same with a service that pops."""

    def __init__(self, root: Path, clock: ManualClock | None = None, **changes: Any) -> None:
        super().__init__(root, clock, **changes)
        file = ConfigFile(root / "store" / "config" / "consumerOrderInfo.json")
        self.pops = PopService(self.core, file, self.intake, OtherBrokers(self.core.client, [], self.core.clock))
        self.pops.load()
        self.pops.start()
        self._routes = {route.code: route for route in self.pops.routes()}

    def ask(self, code: RequestCode, header: Header) -> ReceivedResponse:
        """The answer to one request."""
        channel = _Channel()
        request: Request[Any] = Request(code=int(code), header=header, channel=channel, serialization=JSON)
        batch = self._routes[code].batch
        assert batch is not None
        batch([request])
        (answer,) = channel.answers
        return answer


class PopModel(RuleBasedStateMachine):
    """What a group of consumers sees."""

    changes: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.rig = PopRig(self.folder, **self.changes)
        self.sent: set[bytes] = set()
        self.done: set[bytes] = set()
        # Delivered messages with their newest handle and the time of their redelivery.
        self.held: dict[bytes, tuple[Message, int]] = {}
        # May come early, or although it was acknowledged: it was popped before a crash, or touched after its time.
        self.loose: set[bytes] = set()
        self.crashes = 0

    @property
    def now(self) -> int:
        return self.rig.clock.wall_ms()

    @initialize()
    def begin(self) -> None:
        self.send(3, 0)

    @rule(count=st.integers(1, 5), queue_id=st.integers(0, 1))
    def send(self, count: int, queue_id: int) -> None:
        topic = b"Orders"
        for offset in self.rig.send(count, queue_id=queue_id):
            self.sent.add(b"%b %d %d" % (topic, queue_id, offset))

    @rule(
        most=st.integers(1, 8), invisible_s=st.sampled_from([0, 1, 2, 5, 9]), queue_id=st.sampled_from([-1, -1, 0, 1])
    )
    def pop(self, most: int, invisible_s: int, queue_id: int) -> None:
        header = pop_header(max_msg_nums=most, invisible_time=invisible_s * 1000, queue_id=queue_id, born_time=self.now)
        answer = self.rig.ask(RequestCode.POP_MESSAGE, header)
        if answer.code != ResponseCode.SUCCESS:
            assert answer.code == ResponseCode.POLLING_TIMEOUT
            return
        for message in messages_of(answer):
            body = message.body
            assert body in self.sent
            if body not in self.loose:
                assert body not in self.done, f"{body!r} comes again, acknowledged as it was"
                assert body not in self.held or self.held[body][1] <= self.now, f"{body!r} comes too early"
            self.held[body] = (message, self.now + invisible_s * 1000)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        body = data.draw(st.sampled_from(sorted(self.held)))
        message, visible_at = self.held[body]
        self._acknowledge(message)
        self.done.add(body)
        if self.now >= visible_at:
            self.loose.add(body)

    def _acknowledge(self, message: Message) -> None:
        header = AckMessageRequestHeader(
            consumer_group=GROUP, topic=message.real_topic, queue_id=message.queue_id,
            extra_info=message.handle.encode(), offset=message.queue_offset,
        )  # fmt: skip
        assert self.rig.ask(RequestCode.ACK_MESSAGE, header).code == ResponseCode.SUCCESS

    @precondition(lambda self: self.held.keys() - self.done)
    @rule(data=st.data(), invisible_s=st.sampled_from([0, 1, 3, 8]))
    def change(self, data: st.DataObject, invisible_s: int) -> None:
        body = data.draw(st.sampled_from(sorted(self.held.keys() - self.done)))
        message, visible_at = self.held[body]
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=GROUP, topic=message.real_topic, queue_id=message.queue_id,
            extra_info=message.handle.encode(), offset=message.queue_offset, invisible_time=invisible_s * 1000,
        )  # fmt: skip
        answer = self.rig.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        assert answer.code == ResponseCode.SUCCESS
        newer = replace(message, handle=changed(message, answer))
        if self.now >= visible_at:
            self.loose.add(body)
        self.held[body] = (newer, self.now + invisible_s * 1000)

    @rule(seconds=st.sampled_from([0.1, 1, 2, 4, 11]))
    def elapse(self, seconds: float) -> None:
        self.rig.elapse(seconds)

    @precondition(lambda self: self.crashes < 3)
    @rule()
    def stop_and_start(self) -> None:
        self.crashes += 1
        self.rig.pops.stop()
        self.rig.pops.save()
        # Revive's offset follows what the disk is sure of: without this it would revive some messages again.
        self.rig.flush()
        self._again(self.rig.restart)

    @precondition(lambda self: self.crashes < 3)
    @rule(is_saved=st.booleans())
    def crash(self, is_saved: bool) -> None:
        self.crashes += 1
        if is_saved:
            self.rig.core.offsets.persist()
        # What was popped since the offsets were saved is popped again.
        self.loose |= set(self.held)
        self._again(self.rig.crash)

    def _again(self, close: Any) -> None:
        wheel, read, clock = self.rig._wheel, self.rig._wheel_read, self.rig.clock
        again = close()
        again.close()
        self.rig = PopRig(self.folder, clock, **self.changes)
        self.rig._wheel, self.rig._wheel_read = wheel, read

    def teardown(self) -> None:
        """A consumer that waits long enough gets every unacknowledged message."""
        try:
            missing = self.sent - self.done
            for _ in range(10):
                if not missing:
                    break
                self.rig.elapse(_SETTLED_S, 1.0)
                missing -= self._pop_all()
            assert not missing, f"lost: {missing}"
        finally:
            self.rig.close()
            shutil.rmtree(self.folder)

    def _pop_all(self) -> set[bytes]:
        found: set[bytes] = set()
        for _ in range(50):
            header = pop_header(invisible_time=100_000, born_time=self.now)
            answer = self.rig.ask(RequestCode.POP_MESSAGE, header)
            if answer.code != ResponseCode.SUCCESS:
                break
            found |= {message.body for message in messages_of(answer)}
        return found


class BufferedPopModel(PopModel):
    """The same with pops in memory for a while."""

    changes: ClassVar[dict[str, Any]] = {
        "enable_pop_buffer_merge": True,
        "pop_ck_stay_buffer_time": 4_000,
        "pop_ck_stay_buffer_time_out": 500,
    }


def _run(model: type[PopModel], examples: int) -> None:
    run_state_machine_as_test(
        model,
        settings=settings(
            max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@pytest.mark.parametrize("model", [PopModel, BufferedPopModel])
def test_no_message_is_lost_and_none_is_in_two_hands(model: type[PopModel]) -> None:
    _run(model, 5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("model", [PopModel, BufferedPopModel])
def test_the_same_for_longer(model: type[PopModel]) -> None:
    _run(model, 100)

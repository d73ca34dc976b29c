"""Random ordered pops against a model: a queue continues after acknowledgement or the invisible time."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.pop import AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader
from tests.broker.pop.rig import Message, messages_of, pop_header
from tests.broker.pop.test_pop_model import PopRig
from tests.broker.rig import GROUP, TOPIC

QUEUES = 2


@dataclass
class Queue:
    """One queue as its group should see it."""

    sent: int = 0
    begin: int = 0  # the first message that is not acknowledged
    out: dict[int, Message] = field(default_factory=dict)  # the last pop
    visible_at: dict[int, int] = field(default_factory=dict)  # of what of it is not acknowledged

    def is_blocked(self, now: int) -> bool:
        return any(now < at for at in self.visible_at.values())

    def acknowledge(self, offset: int) -> None:
        self.visible_at.pop(offset, None)
        self.begin = min(self.visible_at, default=max(self.out) + 1)


class OrderedPopModel(RuleBasedStateMachine):
    """One group, whose members pop in order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.rig = PopRig(self.folder)
        self.queues = [Queue() for _ in range(QUEUES)]
        self.stops = 0

    @property
    def now(self) -> int:
        return self.rig.clock.wall_ms()

    @initialize()
    def begin(self) -> None:
        self.send(4, 0)

    @rule(count=st.integers(1, 4), queue_id=st.integers(0, QUEUES - 1))
    def send(self, count: int, queue_id: int) -> None:
        self.rig.send(count, queue_id=queue_id)
        self.queues[queue_id].sent += count

    @rule(most=st.integers(1, 6), invisible_s=st.sampled_from([1, 3, 8]))  # 0 would mean the time of the next pop
    def pop(self, most: int, invisible_s: int) -> None:
        header = pop_header(max_msg_nums=most, invisible_time=invisible_s * 1000, order=True, born_time=self.now)
        answer = self.rig.ask(RequestCode.POP_MESSAGE, header)
        found = messages_of(answer) if answer.code == ResponseCode.SUCCESS else []
        ready = [queue for queue in self.queues if not queue.is_blocked(self.now) and queue.begin < queue.sent]
        assert bool(found) == bool(ready)
        for queue_id, queue in enumerate(self.queues):
            messages = [message for message in found if message.queue_id == queue_id]
            if not messages:
                continue
            assert not queue.is_blocked(self.now), f"queue {queue_id} is handed out twice at a time"
            offsets = [message.queue_offset for message in messages]
            assert offsets == list(range(queue.begin, queue.begin + len(offsets)))
            queue.out = {message.queue_offset: message for message in messages}
            queue.visible_at = dict.fromkeys(offsets, self.now + invisible_s * 1000)

    def _some(self, data: st.DataObject) -> tuple[Queue, Message]:
        queue = data.draw(st.sampled_from([queue for queue in self.queues if queue.out]))
        return queue, queue.out[data.draw(st.sampled_from(sorted(queue.out)))]

    @precondition(lambda self: any(queue.out for queue in self.queues))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        queue, message = self._some(data)
        self._acknowledge(message)
        queue.acknowledge(message.queue_offset)

    def _acknowledge(self, message: Message) -> None:
        header = AckMessageRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=message.queue_id, extra_info=message.handle.encode(),
            offset=message.queue_offset,
        )  # fmt: skip
        assert self.rig.ask(RequestCode.ACK_MESSAGE, header).code == ResponseCode.SUCCESS

    @precondition(lambda self: any(queue.out for queue in self.queues))
    @rule(data=st.data(), invisible_s=st.sampled_from([0, 2, 6]))
    def change(self, data: st.DataObject, invisible_s: int) -> None:
        queue, message = self._some(data)
        offset = message.queue_offset
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=GROUP, topic=TOPIC, queue_id=message.queue_id, extra_info=message.handle.encode(),
            offset=offset, invisible_time=invisible_s * 1000,
        )  # fmt: skip
        assert self.rig.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header).code == ResponseCode.SUCCESS
        if offset in queue.visible_at:
            queue.visible_at[offset] = self.now + invisible_s * 1000

    @rule(seconds=st.sampled_from([0.1, 1, 2, 5, 9]))
    def elapse(self, seconds: float) -> None:
        self.rig.elapse(seconds, 1.0)

    @precondition(lambda self: self.stops < 3)
    @rule()
    def stop_and_start(self) -> None:
        self.stops += 1
        clock = self.rig.clock
        self.rig.pops.stop()
        self.rig.pops.save()
        self.rig.restart().close()
        self.rig = PopRig(self.folder, clock)

    def teardown(self) -> None:
        """A consumer that acknowledges gets all messages of every queue, in order."""
        try:
            self.rig.elapse(10.0, 1.0)
            for _ in range(60):
                if all(queue.begin == queue.sent for queue in self.queues):
                    break
                self.pop(6, 1)
                for queue in self.queues:
                    for offset, message in sorted(queue.out.items()):
                        if offset >= queue.begin:
                            self._acknowledge(message)
                            queue.acknowledge(offset)
            assert [queue.begin for queue in self.queues] == [queue.sent for queue in self.queues]
        finally:
            self.rig.close()
            shutil.rmtree(self.folder)


TestOrderedPopModel = OrderedPopModel.TestCase
TestOrderedPopModel.settings = settings(
    max_examples=6, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)

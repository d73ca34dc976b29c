"""One broker process: the real store, the real replication service or follower, on a simulated machine.

Clients reach `send` and `pull`; what they are told is what the send processor and the pull processor tell.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from broker.confirm_waits import ConfirmWaits
from broker.core import BrokerCore
from broker.following import slave_rules
from broker.live_config import LiveConfig
from broker.replication import Replication
from broker.role import Role
from ha.follower import Follower
from remoting.codes import ResponseCode
from sprocket.common.errors import SprocketError, StoreError
from store.message_store import MessageStore, PendingMessage
from store.record import decode
from tests.sim.cluster.machine import Machine, Threads
from tests.sim.cluster.profile import HA_PORT, TOPIC, Profile

_HOST: Final = bytes((10, 0, 0, 9)) + (5432).to_bytes(4, "big")
OK: Final = "SEND_OK"
# (outcome, [(queue offset, physical offset, size)])
SendReply = Callable[[str, list[tuple[int, int, int]]], None]
# [(queue offset, end in the log, body)], or None if it is not served
PullReply = Callable[[list[tuple[int, int, bytes]] | None], None]


class SimBroker:
    """From the start of the process to its end, which comes without a word."""

    def __init__(self, machine: Machine, profile: Profile, group: int, broker_id: int) -> None:
        self.machine = machine
        self.process = machine.start_process()
        self.is_master = broker_id == 0
        self.is_serving = False
        self.refusal: SprocketError | None = None
        self.failure: SprocketError | None = None
        self._threads = Threads(machine, self.process)
        self._config = LiveConfig(profile.broker_config(group, broker_id, machine.ip), profile.store_config())
        self.store = MessageStore(
            self._config.store,
            clock=machine,
            notify=self._threads.notify,
            disk=machine.disk,
            workers=self._threads.worker,
        )
        self.waits: ConfirmWaits | None = None
        self.replication: Replication | None = None
        self.follower: Follower | None = None
        # Called in the process once the store is open and before anybody is served.
        self.on_open: Callable[[SimBroker], None] = lambda broker: None
        self.process.call_soon(self._begin)

    def _begin(self) -> None:
        # An error that nobody foresaw is a bug, and ends the run.
        self.process.create_task(self._start()).add_done_callback(lambda task: task.result())

    async def _start(self) -> None:
        try:
            self.store.start()
        except SprocketError as error:
            self.refusal = error
            return
        self.store.on_failure.append(self._fail)
        self.on_open(self)
        core = self._core()
        if self.is_master:
            self.replication = Replication(core, any_port=False)
            self.replication.load()
            await self.replication.listen()
            self.replication.start()
            for work in self.replication.periodic():
                work.start()
        else:
            log = self.store.replica()
            log.restart()
            self.follower = Follower(slave_rules(self._config.store), log, self.machine, self._fail)
            self.follower.start()
        self.is_serving = True

    def _core(self) -> BrokerCore:
        call_later = self.process.call_later
        self.waits = ConfirmWaits(self.store, self.machine, call_later, self._config.broker.broker_role)
        known: dict[str, Any] = {
            "config": self._config,
            "role": Role(self._config.broker.broker_role),
            "clock": self.machine,
            "call_later": call_later,
            "random_below": self.machine.scheduler.rng.randrange,
            "store": self.store,
            "waits": self.waits,
            "fail": self._fail,
        }
        # Replication asks for nothing else.
        return BrokerCore(**(dict.fromkeys(BrokerCore.__dataclass_fields__) | known))  # type: ignore[arg-type]

    def _fail(self, error: SprocketError) -> None:
        self.failure = error
        self.is_serving = False

    # What others see

    @property
    def end_offset(self) -> int:
        return self.store.wrote_offset

    def follow(self, ip: str) -> None:
        """A name server says where the master is."""
        if self.follower is not None and self.is_serving:
            self.follower.follow(f"{ip}:{HA_PORT}")

    def acked_by(self, ip: str) -> int:
        """Up to where the slave of this address has the log, as far as this master knows."""
        connections = self.replication.listener.connections if self.replication is not None else []
        return max((one.link.acked_offset for one in connections if one.peer[0] == ip), default=0)

    def send(self, queue_id: int, bodies: Sequence[bytes], reply: SendReply) -> None:
        if not self.is_serving or not self.is_master:
            reply("NOT_SERVED", [])
            return
        messages = [
            PendingMessage(TOPIC, queue_id, body, b"", 0, 0, 0, self.machine.wall_ms(), _HOST) for body in bodies
        ]
        try:
            appended = self.store.append(messages)
        except StoreError as error:
            reply(f"REFUSED {type(error).__name__}", [])
            return
        positions = [tuple(one) for one in appended]
        end = appended[-1][1] + appended[-1][2]

        def answer(error: StoreError | None, code: ResponseCode) -> None:
            outcome = f"FAILED {type(error).__name__}" if error else OK if code == ResponseCode.SUCCESS else code.name
            reply(outcome, cast(list[tuple[int, int, int]], positions))

        assert self.waits is not None
        self.waits.wait(end, answer)

    def pull(self, queue_id: int, offset: int, reply: PullReply) -> None:
        if not self.is_serving:
            reply(None)
            return
        result = self.store.get(TOPIC, queue_id, offset, 16, 1 << 16)
        found = []
        content = memoryview(b"".join(result.slices))
        while content:
            size = int.from_bytes(content[:4], "big")
            record = decode(content[:size])
            assert not isinstance(record, str), record
            found.append((record.queue_offset, record.physical_offset + size, bytes(record.body)))
            content = content[size:]
        reply(found)

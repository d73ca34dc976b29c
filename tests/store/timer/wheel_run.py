"""A timer on a simulated disk under a seeded script, and a model of what it should deliver and when."""

import random
from dataclasses import dataclass, field
from typing import Any, Final

from sprocket.remoting.message.topic_names import TIMER_TOPIC
from store.message_store import PendingMessage
from store.record.record import Record
from store.timer.timer_message_store import TimerMessageStore
from tests.clock import ManualClock
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_image import Subset, Survivors
from tests.sim.sim_store import SimStore, small_config
from tests.store.reading import stored

HOST: Final = bytes((10, 1, 2, 3)) + (5432).to_bytes(4, "big")
# Two hours of seconds, so that steps of an hour fit the ring.
SLOTS: Final = 7200
REAL_TOPIC: Final = "Orders"
_MAX_TURNS: Final = 10_000
STEPS: Final = {
    "send": 40,
    "recall": 6,
    "pass_time": 30,
    "jump": 3,
    "flush": 10,
    "checkpoint": 10,
    "restart": 3,
    "kill": 3,
    "power_cut": 3,
    "lose_wheel": 2,
}
CRASHES: Final = ("kill", "power_cut", "lose_wheel")


def timed(number: int, due_ms: int, **properties: str) -> PendingMessage:
    """Return a message of the wheel's topic, as the broker makes it; `due_ms` is its slot."""
    values = {
        "UNIQ_KEY": f"K{number}", "TIMER_OUT_MS": str(due_ms), "REAL_TOPIC": REAL_TOPIC, "REAL_QID": "0",
    } | properties  # fmt: skip
    encoded = "".join(f"{name}\x01{value}\x02" for name, value in values.items()).encode()
    return PendingMessage(TIMER_TOPIC, 0, (b"%d." % number).ljust(10, b"."), encoded, 0, 3, 0, 77, HOST)


def number_of(record: Record) -> int:
    return int(bytes(record.body).partition(b".")[0])


@dataclass
class Sent:
    """One message of the model."""

    due_ms: int
    offset: int  # in the wheel's queue
    end: int  # of its record
    is_recalled: bool = False
    has_come: bool = False


@dataclass
class WheelRun:
    """One run; `problems` lists what is wrong."""

    seed: int
    fields: dict[str, Any] = field(default_factory=dict)
    sync_flush: bool = False

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.clock = ManualClock()
        self.disk = SimDisk(self.seed)
        self.config = small_config(
            sync_flush=self.sync_flush,
            segment_bytes=256 * 1024,
            timer_roll_window_slot=self.rng.choice((40, 900, 3000)),
            mapped_file_size_timer_log=4096,
            **self.fields,
        )
        self.sent: dict[int, Sent] = {}
        self.problems: list[str] = []
        self.crashes = 0
        self.counts: dict[str, int] = {}
        self._next = 0
        self._seen = 0
        self._open()

    def _open(self) -> None:
        self.sim = SimStore(self.disk, self.config, self.clock)
        self.store = self.sim.open()
        self.timer = TimerMessageStore(self.store, self.clock, self._count, slots_total=SLOTS)
        self.timer.load()
        self._seen = min(self._seen, self.store.max_offset(REAL_TOPIC, 0))

    def _count(self, topic: str, change: int) -> None:
        self.counts[topic] = self.counts.get(topic, 0) + change

    @property
    def slot_ms(self) -> int:
        return self.config.slot_ms

    # The script

    def play(self, steps: int) -> "WheelRun":
        kinds, weights = list(STEPS), list(STEPS.values())
        for _ in range(steps):
            (kind,) = self.rng.choices(kinds, weights)
            getattr(self, f"do_{kind}")()
            self.turns()
        return self

    def turns(self) -> None:
        """Let the timer work until nothing is due, and check the deliveries."""
        for _ in range(_MAX_TURNS):
            if self.timer.turn() != 0.0:
                break
            self._look()
        else:
            self.problems.append("the timer never rests")
        self._look()

    def _look(self) -> None:
        now = self.clock.wall_ms()
        for offset in range(self._seen, self.store.max_offset(REAL_TOPIC, 0)):
            sent = self.sent.get(number_of(stored(self.store, REAL_TOPIC, 0, offset)))
            if sent is not None:
                sent.has_come = True
            if sent is not None and now < sent.due_ms + self.slot_ms:
                self.problems.append(f"early by {sent.due_ms + self.slot_ms - now} ms: {sent}")
        self._seen = self.store.max_offset(REAL_TOPIC, 0)

    def do_send(self) -> None:
        for _ in range(self.rng.choice((1, 1, 2, 5, 30))):
            delay_ms = self.rng.choice((1, 700, 1000, 5_000, 45_000, 100_000, 1_500_000))
            self.send(self.rng.randint(1, delay_ms))

    def send(self, delay_ms: int) -> int:
        """Send a message that is due after a delay.  Return its number."""
        due_ms = (self.clock.wall_ms() + delay_ms - 1) // self.slot_ms * self.slot_ms
        number = self._next
        self._next += 1
        offset, physical_offset, size = self.store.append([timed(number, due_ms)])[0]
        self.sent[number] = Sent(due_ms, offset, physical_offset + size)
        return number

    def do_recall(self) -> None:
        now = self.clock.wall_ms()
        open_numbers = [
            number
            for number, sent in self.sent.items()
            if sent.due_ms > now and not (sent.is_recalled or sent.has_come)
        ]
        if open_numbers:
            self.recall(self.rng.choice(open_numbers))

    def recall(self, number: int) -> None:
        sent = self.sent[number]
        key = f"{REAL_TOPIC}+K{number}"
        sent.is_recalled = True
        self.store.append([timed(-1, sent.due_ms, TIMER_DEL_UNIQKEY=key, UNIQ_KEY=f"K{number}")])

    def do_pass_time(self) -> None:
        self.clock.advance(self.rng.choice((0.01, 0.3, 1.0, 2.5, 20.0, 400.0)))

    def do_jump(self) -> None:
        self.clock.step_wall(self.rng.choice((-3_600_000, 3_600_000, -40_000, 61_000)))

    def do_flush(self) -> None:
        self.sim.flush()

    def do_checkpoint(self) -> None:
        flush = self.timer.prepare_flush()
        if flush is not None:
            flush.write()
            self.timer.flushed(flush)

    def do_restart(self) -> None:
        """Stop cleanly: all is flushed, and nothing is delivered twice."""
        self.store.flush()
        self.do_checkpoint()
        self.timer.close()
        self.store.shutdown()
        self.disk.kill()
        self._open()

    def do_kill(self) -> None:
        self.crashes += 1
        self.disk.kill()
        self._open()

    def do_power_cut(self) -> None:
        self.crashes += 1
        survivors = self.rng.choice(list(Survivors))
        flushed = self.store.flushed_offset
        self.disk = self.disk.crash(Subset(survivors, self.rng.randrange(1 << 30)))
        self._open()
        # Unflushed messages may be gone, and others stored in their place.
        self.sent = {
            number: sent
            for number, sent in self.sent.items()
            if sent.end <= flushed or self._is_there(number, sent.offset)
        }
        recalled = {int(key[key.rindex("K") + 1 :]) for key in self._recalled_keys()}
        for number, sent in self.sent.items():
            sent.is_recalled = number in recalled

    def do_lose_wheel(self) -> None:
        """Lose the wheel's file, and perhaps die again during the rebuild, which takes more than one turn."""
        for _ in range(300):
            self.send(self.rng.randint(1, 20_000))
        self.turns()
        self.do_flush()
        self.do_checkpoint()
        self.do_pass_time()
        self.disk.kill()
        self.disk.remove(self.config.store_path_root_dir / "timerwheel")
        self.crashes += 1
        self._open()
        for _ in range(self.rng.randrange(3)):
            self.timer.turn()
            self._look()
        self.rng.choice((self.do_flush, self.do_checkpoint, self.do_kill, self.do_pass_time))()

    def _is_there(self, number: int, offset: int) -> bool:
        if offset >= self.store.max_offset(TIMER_TOPIC, 0):
            return False
        return number_of(stored(self.store, TIMER_TOPIC, 0, offset)) == number

    def _recalled_keys(self) -> list[str]:
        keys = []
        for offset in range(self.store.max_offset(TIMER_TOPIC, 0)):
            properties = str(stored(self.store, TIMER_TOPIC, 0, offset).properties, "utf-8")
            _, _, rest = properties.partition("TIMER_DEL_UNIQKEY\x01")
            if rest:
                keys.append(rest.partition("\x02")[0])
        return keys

    # The end

    def finish(self) -> "WheelRun":
        """Let everything become due, and compare."""
        latest = max([sent.due_ms for sent in self.sent.values()], default=0)
        while self.clock.wall_ms() <= latest + self.slot_ms:
            self.clock.advance(self.rng.choice((7.0, 300.0)))
            self.turns()
        came: dict[int, int] = {}
        for offset in range(self.store.max_offset(REAL_TOPIC, 0)):
            number = number_of(stored(self.store, REAL_TOPIC, 0, offset))
            came[number] = came.get(number, 0) + 1
        for number, sent in self.sent.items():
            count = came.get(number, 0)
            if sent.is_recalled:
                # A rolled message meets its delete request only in its last slot: not if the clock jumps past all.
                if count and not self.crashes and self.config.timer_roll_window_slot == 3000:
                    self.problems.append(f"recalled and delivered: {number} {sent}")
            elif not count:
                self.problems.append(f"lost: {number} {sent}")
            elif count > 1 and not self.crashes:
                self.problems.append(f"delivered {count} times: {number} {sent}")
        if self.timer.waiting and not self.crashes:
            self.problems.append(f"{self.timer.waiting} are counted as waiting")
        return self

    def close(self) -> None:
        self.timer.close()
        self.store.shutdown()

"""The simulated loop and network: order within a connection, splits, cuts, kills, pauses."""

import asyncio
from collections.abc import Callable

import pytest

from tests.sim.cluster.network import Network
from tests.sim.cluster.process import Process
from tests.sim.cluster.scheduler import Scheduler
from tests.tiers import seeds


class Recorder(asyncio.Protocol):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.reads: list[bytes] = []
        self.is_lost = False
        self.calls: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.reads.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")


class Pair:
    """Two processes and one connection between them."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        self.network = Network(self.scheduler)
        self.server = Process("server", "10.0.0.1", self.scheduler, self.network)
        self.client = Process("client", "10.0.0.2", self.scheduler, self.network)
        self.accepted: list[Recorder] = []
        self.here = Recorder()
        self.error: Exception | None = None
        self.server.call_soon(self.network.listen, self.server, 80, self._accept)

    def _accept(self) -> Recorder:
        self.accepted.append(Recorder())
        return self.accepted[-1]

    def connect(self) -> None:
        async def run() -> None:
            try:
                await asyncio.wait_for(self.client.create_connection(lambda: self.here, "10.0.0.1", 80), 3.0)
            except (OSError, TimeoutError) as error:
                self.error = error

        self.client.call_soon(lambda: self.client.create_task(run()))

    def write(self, data: bytes) -> None:
        transport = self.here.transport
        assert transport is not None
        self.client.call_soon(transport.write, data)

    def run(self, seconds: float) -> None:
        self.scheduler.run_until(self.scheduler.now + seconds)
        assert not self.scheduler.errors, self.scheduler.errors

    @property
    def there(self) -> Recorder:
        return self.accepted[0]


def connected(seed: int = 1) -> Pair:
    pair = Pair(seed)
    pair.connect()
    pair.run(1.0)
    return pair


@pytest.mark.parametrize("seed", seeds(5))
def test_bytes_come_in_order_and_split_anywhere(seed: int) -> None:
    pair = connected(seed)
    sent = [bytes([number]) * (number + 1) for number in range(200)]
    for data in sent:
        pair.write(data)
        pair.run(0.0005)
    pair.run(1.0)
    assert b"".join(pair.there.reads) == b"".join(sent)
    assert (
        len({len(data) for data in pair.there.reads} - {len(data) for data in sent}) > 0 or len(pair.there.reads) > 200
    )


def test_nobody_listens() -> None:
    pair = Pair()
    pair.network.servers.clear()
    pair.server.kill()
    pair.connect()
    pair.run(1.0)
    assert isinstance(pair.error, ConnectionRefusedError)


def test_a_machine_without_power_answers_nothing() -> None:
    pair = Pair()
    pair.run(0.1)
    pair.server.kill()
    pair.network.power_lost("10.0.0.1")
    pair.connect()
    pair.run(2.9)
    assert pair.error is None
    pair.run(1.0)
    assert isinstance(pair.error, TimeoutError)


def test_a_cut_link_holds_what_is_sent_until_it_is_healed() -> None:
    pair = connected()
    pair.network.cut("10.0.0.2", "10.0.0.1")
    pair.write(b"one")
    pair.run(5.0)
    assert pair.there.reads == []
    pair.network.heal("10.0.0.2", "10.0.0.1")
    pair.write(b"two")
    pair.run(5.0)
    assert b"".join(pair.there.reads) == b"onetwo"


def test_the_other_end_of_a_killed_process_hears_of_it() -> None:
    pair = connected()
    pair.server.kill()
    pair.network.process_ended(pair.server)
    pair.run(1.0)
    assert pair.here.is_lost
    assert not pair.there.is_lost


def test_nobody_hears_of_a_loss_of_power_until_the_machine_is_back() -> None:
    pair = connected()
    pair.server.kill()
    pair.network.power_lost("10.0.0.1")
    pair.write(b"anybody?")
    pair.run(10.0)
    assert not pair.here.is_lost
    pair.network.power_back("10.0.0.1")
    pair.write(b"now?")
    pair.run(1.0)
    assert pair.here.is_lost


def test_a_connection_that_vanished_is_silent_both_ways() -> None:
    pair = connected()
    (connection,) = pair.network.between("10.0.0.1", "10.0.0.2")
    connection.vanish()
    pair.write(b"anybody?")
    pair.run(10.0)
    assert pair.there.reads == []
    assert not pair.here.is_lost


def test_a_reset_ends_both_ends() -> None:
    pair = connected()
    pair.write(b"x")
    (connection,) = pair.network.between("10.0.0.1", "10.0.0.2")
    connection.reset()
    pair.run(1.0)
    assert pair.here.is_lost
    assert pair.there.is_lost


def test_a_paused_process_fills_its_peers_buffer_and_then_takes_all() -> None:
    pair = connected()
    pair.server.pause()
    for _ in range(30):
        pair.write(b"x" * 1000)
        pair.run(0.1)
    assert pair.there.reads == []
    assert pair.here.calls == ["pause"]
    pair.server.go_on()
    pair.run(1.0)
    assert b"".join(pair.there.reads) == b"x" * 30_000
    assert pair.here.calls == ["pause", "resume"]


def test_a_killed_process_does_nothing_more() -> None:
    pair = connected()
    happened: list[str] = []
    later: Callable[[], None] = lambda: happened.append("later")  # noqa: E731 # a callback
    pair.client.call_later(1.0, later)

    async def wait() -> None:
        try:
            await asyncio.sleep(1.0)
            happened.append("slept")
        finally:
            pair.client.call_soon(later)

    pair.client.call_soon(lambda: pair.client.create_task(wait()))
    pair.run(0.5)
    pair.client.kill()
    pair.run(5.0)
    assert happened == []


def test_an_error_of_a_callback_ends_the_run() -> None:
    pair = connected()
    pair.client.call_soon(lambda: 1 / 0)
    pair.scheduler.run_until(10.0)
    assert "ZeroDivisionError" in pair.scheduler.errors[0]

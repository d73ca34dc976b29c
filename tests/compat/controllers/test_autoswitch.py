"""RocketMQ's protocol of controller mode with Apache's own store at the other end, over real sockets."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from ha.epochs.epoch_file import EpochFile
from ha.epochs.epoch_history import Epoch, EpochHistory
from sprocket.common.errors import RestartNeeded, SprocketError
from store.disk.disk import RealDisk
from tests.compat import maven, ports
from tests.ha.autoswitch.ends import history
from tests.ha.autoswitch.group import follow, group
from tests.store.reading import read_queue
from tests.store.rig import Stores, message
from tests.waiting import until

TOOL = Path(__file__).resolve().parents[1] / "java" / "store" / "ReplicaTool.java"
LIMIT_S = 60.0

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]


class ApacheReplica:
    """`ReplicaTool` in a process of its own: Apache's store as a master or a slave.  Ends with its context."""

    def __init__(self, root: Path, broker_id: int, *flags: str) -> None:
        try:
            self._classpath = maven.apache_classpath()
        except maven.JavaMissingError as missing:
            pytest.skip(f"Apache's store: {missing}")
        self.root, self._id, self._flags = root, broker_id, flags
        self.port = ports.free_port()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> "ApacheReplica":
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "errors.txt").open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                *maven.short_java(), "-Xmx256m", f"-Duser.home={self.root}", "-cp",
                maven.compiled(TOOL, self._classpath), TOOL.stem,
                str(self.root), str(self.port), str(self._id), *self._flags,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        assert await self._answer() == "ready"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _answer(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        while True:
            line = (await asyncio.wait_for(self._process.stdout.readline(), LIMIT_S)).decode()
            assert line, (self.root / "errors.txt").read_text()[-4000:]
            if line.startswith("OK "):
                return line[3:].strip()

    async def run(self, *words: object) -> str:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        return await self._answer()

    async def end(self) -> None:
        """End in order."""
        assert await self.run("end") == "ended"
        assert self._process is not None
        await self._process.wait()

    async def state(self) -> tuple[int, int, int, EpochHistory]:
        """End of the log, confirm offset, end of the queue that consumers see, epochs."""
        end, confirm, seen, epochs, *_ = (await self.run("ask")).split(" ")
        parts = [one.split("-") for one in epochs.split(",") if one]
        return int(end), int(confirm), int(seen), EpochHistory(Epoch(int(a), int(b)) for a, b in parts)

    async def until_end(self, offset: int, seen: int) -> EpochHistory:
        """Wait for the log's end and the end of the queue that consumers see; return the epochs."""
        deadline = asyncio.get_running_loop().time() + LIMIT_S
        while True:
            state = await self.state()
            if state[:3] == (offset, offset, seen):
                return state[3]
            assert asyncio.get_running_loop().time() < deadline, f"{state} in place of {offset}, {seen}"
            await asyncio.sleep(0.1)

    def log(self, size_bytes: int) -> bytes:
        """The first bytes of its log."""
        files = sorted(path for path in (self.root / "commitlog").iterdir() if path.name.isdigit())
        return b"".join(path.read_bytes() for path in files)[:size_bytes]


def epoch_file(root: Path, log_end: int) -> EpochFile:
    return EpochFile(RealDisk(), root / "epochFileCheckpoint", log_end)


def log_of(root: Path, size_bytes: int) -> bytes:
    files = sorted((root / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files)[:size_bytes]


async def test_an_apache_slave_follows_our_master_through_epochs(tmp_path: Path) -> None:
    async with group(tmp_path) as it, ApacheReplica(tmp_path / "apache", 2) as slave:
        it.send(100)
        it.begin(3)
        it.send(100)
        await slave.run("slave", 3, it.address)
        assert await slave.until_end(it.master.wrote_offset, 200) == it.epochs.history
        await until(lambda: it.listener.replicas.offsets() == [it.master.wrote_offset])
        assert [one.identity for one in it.listener.connections] == [("C", "a", 2)]
        # The next epoch begins while it is connected, and after an epoch without a byte.
        it.begin(4)
        it.begin(6)
        it.send(50)
        end = it.master.wrote_offset
        assert await slave.until_end(end, 250) == it.epochs.history
        assert slave.log(end) == log_of(tmp_path / "master", end)


async def test_an_apache_master_that_was_replaced_truncates_its_tail_under_our_master(tmp_path: Path) -> None:
    async with group(tmp_path) as it, ApacheReplica(tmp_path / "apache", 2) as other:
        it.send(30)
        await other.run("slave", 1, it.address)
        common = it.master.wrote_offset
        await other.until_end(common, 30)
        assert await other.run("master", 2) == "true"
        assert await other.run("put", 5, "nobody-else-has-this") == "PUT_OK"
        it.begin(3)
        it.send(40, b"y")
        assert await other.run("slave", 3, it.address) == "true"
        end = it.master.wrote_offset
        assert await other.until_end(end, 70) == history((1, 0), (3, common))
        assert other.log(end) == log_of(tmp_path / "master", end)


async def test_a_learner_of_apache_does_not_count(tmp_path: Path) -> None:
    async with (
        group(tmp_path) as it,
        ApacheReplica(tmp_path / "apache", 2, "asyncLearner", "syncFromLastFile") as slave,
    ):
        it.send(200)
        await slave.run("slave", 1, it.address)
        await slave.until_end(it.master.wrote_offset, 200)
        segments = sorted(path.name for path in (tmp_path / "apache" / "commitlog").iterdir() if path.name.isdigit())
        assert int(segments[0]) == it.master.wrote_offset // (16 * 1024) * 16 * 1024 > 0
        assert it.listener.connections[0].link.is_learner
        replicas = it.listener.replicas
        assert not replicas.in_sync_slaves() and replicas.progress().acknowledged < it.master.wrote_offset


async def test_our_slave_follows_an_apache_master_through_epochs(tmp_path: Path) -> None:
    stores = Stores(tmp_path / "slave")
    async with ApacheReplica(tmp_path / "apache", 1, "allAckInSyncStateSet") as master:
        for epoch in (1, 2, 5):
            assert await master.run("master", epoch) == "true"
            assert await master.run("put", 100, f"epoch-{epoch}-") == "PUT_OK"
        store = stores.open()
        epochs = epoch_file(stores.root, 0)
        follower = follow(master.address, store, epochs)
        end, _, _, theirs = await master.state()
        await until(lambda: store.wrote_offset == end)
        assert epochs.history == theirs
        assert len(theirs.epochs) == 3
        # The master tells what it confirmed with its next heartbeat.
        await until(lambda: store.confirm_offset == end)
        # Its store counts us, by our id.
        await master.run("sync", 1, 2)
        assert await master.run("put", 20, "both-") == "PUT_OK"
        end, confirm, _, _ = await master.state()
        await until(lambda: store.wrote_offset == end == confirm)
        # A new epoch while we are connected.
        assert await master.run("master", 7) == "true"
        assert await master.run("put", 20, "later-")
        end, _, _, theirs = await master.state()
        await until(lambda: store.wrote_offset == end)
        assert epochs.history == theirs
        assert theirs.last is not None and theirs.last.number == 7
        assert log_of(stores.root, end) == master.log(end)
        follower.stop()
        # A new start finds the same epochs in the file, and goes on.
        await asyncio.sleep(0)
        stores.crash(store)
        store = stores.open()
        epochs = epoch_file(stores.root, store.wrote_offset)
        assert epochs.history == theirs
        await master.run("sync", 1)
        assert await master.run("put", 20, "again-") == "PUT_OK"
        end, *_ = await master.state()
        follower = follow(master.address, store, epochs)
        await until(lambda: store.wrote_offset == store.confirm_offset == end)
        assert len(read_queue(store, "Orders", 0)) == 360
        follower.stop()
    stores.close_all()


async def test_our_old_master_truncates_its_tail_under_an_apache_master(tmp_path: Path) -> None:
    stores = Stores(tmp_path / "ours")
    async with ApacheReplica(tmp_path / "apache", 1) as master:
        await master.run("master", 1)
        await master.run("put", 30, "common-")
        common, _, _, _ = await master.state()
        store = stores.open()
        epochs = epoch_file(stores.root, 0)
        follower = follow(master.address, store, epochs)
        await until(lambda: store.wrote_offset == common)
        follower.stop()
        # We lead in epoch 2, and nobody gets what we write.
        store.replica().lead()
        epochs.begin(Epoch(2, common))
        store.append([message(body=b"nobody else has this")])
        await master.run("master", 3)
        await master.run("put", 30, "their-")
        failures: list[SprocketError] = []
        follower = follow(master.address, store, epochs, failures)
        await until(lambda: failures)
        assert isinstance(failures[0], RestartNeeded)
        follower.stop()
        stores.crash(store)
        store = stores.open()
        epochs = epoch_file(stores.root, store.wrote_offset)
        assert (store.wrote_offset, epochs.history) == (common, history((1, 0)))
        follower = follow(master.address, store, epochs)
        end, _, _, theirs = await master.state()
        await until(lambda: store.wrote_offset == end)
        assert epochs.history == theirs == history((1, 0), (3, common))
        assert log_of(stores.root, end) == master.log(end)
        follower.stop()
    stores.close_all()

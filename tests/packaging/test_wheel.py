"""The wheel in an environment with msgspec alone: what a client's machine has after `pip install sprocket-mq`."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprocket import Compression, Message, Producer, SendSettings
from sprocket.testing import Broker

from .environment import ROOT, Environment, build_wheel

PROGRAMS = ("sprocket", "mqnamesrv", "mqcontroller", "mqbroker", "mqadmin", "mqproxy")

ROUND_TRIP = """
import asyncio, sys
from sprocket import ConsumeFrom, Consumer, Message, Producer
from sprocket.sync import Producer as BlockingProducer

async def main(namesrv):
    async with Producer("g", namesrv) as producer:
        await producer.send(Message("Light", b"hello " * 2000))
    async with Consumer("c", ["Light"], namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        message = await anext(consumer)
        assert message.body == b"hello " * 2000, message.body
        await consumer.ack(message)

asyncio.run(main(sys.argv[1]))
with BlockingProducer("b", sys.argv[1]) as producer:
    print(producer.send(Message("Light", b"blocking")).status.name)
"""

# What Python has on Linux and not on Windows, in the parts that a client could touch.  asyncio and the standard library
# keep what they have loaded.
NO_POSIX = """
import asyncio, concurrent.futures, logging.handlers, multiprocessing, os, shutil, signal, socket, ssl, subprocess, sys
import tempfile, uuid

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in {"fcntl", "grp", "pwd", "resource", "termios", "uvloop"}:
            raise ModuleNotFoundError(name, name=name)

for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
for name in (
    "O_CLOEXEC", "O_DIRECTORY", "O_DSYNC", "O_NOFOLLOW", "O_NONBLOCK", "fchmod", "fdatasync", "fork", "getegid",
    "geteuid", "getuid", "killpg", "posix_fallocate", "pread", "pwrite", "register_at_fork", "sched_getaffinity",
    "sched_setaffinity", "sendfile", "sysconf", "uname",
):
    delattr(os, name)
for name in ("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGUSR1", "pthread_sigmask"):
    delattr(signal, name)
for name in ("SO_REUSEPORT", "SCM_RIGHTS"):
    delattr(socket, name)

def refuse(*given):
    raise NotImplementedError

for kind in (asyncio.SelectorEventLoop, asyncio.AbstractEventLoop):
    kind.add_signal_handler = kind.remove_signal_handler = refuse
"""

HANDLED = """
import pathlib
from sprocket import ConsumeFrom, MessageModel, connect

async def handled(namesrv, **how):
    async with connect(namesrv) as mq:
        consumer = mq.consumer("h-" + "-".join(how), "Light", consume_from=ConsumeFrom.FIRST, **how)

        async def handle(message):
            consumer.stop()

        await consumer.run(handle)

asyncio.run(handled(sys.argv[1]))
asyncio.run(handled(sys.argv[1], model=MessageModel.BROADCASTING))
import sprocket.testing
"""

UNREADABLE = """
import asyncio, sys
from sprocket import ConsumeFrom, Consumer, BodyUnreadable

async def main(namesrv):
    async with Consumer("c", ["Packed"], namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
        for _ in range(2):
            try:
                print((await anext(consumer)).body)
            except BodyUnreadable as error:
                print(error)

asyncio.run(main(sys.argv[1]))
"""

LOADED = """
import json, sys
before = set(sys.modules)
{work}
new = {{name.partition(".")[0] for name in set(sys.modules) - before}} - set(sys.stdlib_module_names)
print(json.dumps(sorted(new)))
"""


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("light")
    light = Environment(folder / "environment", build_wheel(folder), ("msgspec",))
    assert light.log.returncode == 0, light.log.stderr
    return light


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def test_a_message_is_sent_and_received(light: Environment, broker: Broker) -> None:
    done = light.run("python", "-I", "-c", ROUND_TRIP, broker.namesrv)
    assert (done.stdout, done.returncode) == ("SEND_OK\n", 0), done.stderr


def test_a_client_needs_nothing_that_windows_lacks(light: Environment, broker: Broker) -> None:
    # A topic of its own: the group of another test has read a part of that of the other one.
    code = NO_POSIX + (ROUND_TRIP + HANDLED).replace('"Light"', '"NoPosix"')
    done = light.run("python", "-I", "-c", code, broker.namesrv, HOME=str(light.folder))
    assert (done.stdout, done.returncode) == ("SEND_OK\n", 0), done.stderr


def test_a_body_whose_extra_is_missing_names_it(light: Environment, broker: Broker) -> None:
    async def send() -> None:
        for kind in (Compression.ZSTD, Compression.LZ4):
            settings = SendSettings(compress_type=kind, default_topic_queue_nums=1)
            async with Producer("g", broker.namesrv, settings=settings) as producer:
                await producer.send(Message("Packed", bytes(10_000)))

    broker.create_topic("Packed", 1)
    asyncio.run(send())
    done = light.run("python", "-I", "-c", UNREADABLE, broker.namesrv)
    assert done.stdout.splitlines() == [
        "a body compressed with ZSTD needs zstandard, which is not installed: pip install 'sprocket-mq[zstd]'",
        "a body compressed with LZ4 needs lz4, which is not installed: pip install 'sprocket-mq[lz4]'",
    ], done.stderr


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ("import sprocket", ["sprocket"]),
        ("import sprocket; dir(sprocket)", ["sprocket"]),
        ("from sprocket import *; import sprocket.sync, sprocket.testing", ["msgspec", "sprocket"]),
    ],
)
def test_imports_load_nothing_else(light: Environment, work: str, expected: list[str]) -> None:
    done = light.run("python", "-I", "-c", LOADED.format(work=work))
    assert json.loads(done.stdout) == expected, done.stderr


@pytest.mark.parametrize(
    ("work", "extra"),
    [
        ("from sprocket import Leases", "server"),
        ("import sprocket.spark", "spark"),
        ("from sprocket import *; SendSettings(compress_type=Compression.LZ4)", "lz4"),
        ("from sprocket import *; SendSettings(compress_type=Compression.ZSTD)", "zstd"),
        ("from sprocket.testing import Broker; Broker().start()", "testing"),
    ],
)
def test_what_needs_an_extra_names_it(light: Environment, work: str, extra: str) -> None:
    done = light.run("python", "-I", "-c", work)
    assert done.stderr.splitlines()[-1].endswith(f"pip install 'sprocket-mq[{extra}]'"), done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_command_names_its_extra(light: Environment, program: str) -> None:
    done = light.run(program, "--help")
    text = f"Error: {program} needs click, which is not installed: pip install 'sprocket-mq[server]'\n"
    assert (done.returncode, done.stderr) == (2, text)


def test_a_command_whose_work_needs_more_names_the_extra(light: Environment, tmp_path: Path) -> None:
    """click is often there for other reasons."""
    light.copy("click", tmp_path)
    done = light.run("mqbroker", "-n", "127.0.0.1:1", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("not installed: pip install 'sprocket-mq[server]'"), done.stderr


def test_the_plugin_breaks_no_tests_without_its_extra(light: Environment, tmp_path: Path) -> None:
    for package in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        light.copy(package, tmp_path / "site")
    tests = "def test_plain(): pass\n\n\ndef test_with_a_broker(sprocket_broker): pass\n"
    (tmp_path / "test_own.py").write_text(tests)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_own.py"))
    done = light.run("python", *words, PYTHONPATH=str(tmp_path / "site"))
    assert "1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "not installed here: pip install 'sprocket-mq[testing]'" in done.stdout


def test_the_wheel_carries_types_and_no_sources_of_the_engine(light: Environment) -> None:
    assert (light.site / "sprocket" / "py.typed").exists()
    assert not list(light.site.glob("*/**/*.p[yx][xd]"))
    assert not (light.site / "sprocket_cli" / "demo").exists()


def test_the_wheel_carries_what_init_writes(light: Environment) -> None:
    written = set((ROOT / "sprocket_cli" / "project").glob("*.txt"))
    assert len(written) > 10
    assert {path.name for path in (light.site / "sprocket_cli" / "project").glob("*.txt")} == {
        path.name for path in written
    }

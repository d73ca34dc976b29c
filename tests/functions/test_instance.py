"""One instance as a process: its metrics, its reports, and what ends it."""

import asyncio
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import msgspec
import pytest

import sprocket
from sprocket.common.processes.child_process import ChildProcess, ProcessNotStarted, bound
from sprocket.functions.deployments import STATUS, Described, Status, create_registry, create_topics
from sprocket.functions.instance import InstanceArguments
from sprocket.functions.package import pack
from sprocket.testing import Broker
from tests.compat.ports import free_port
from tests.waiting import until

CODE = """
from sprocket.functions import function

@function(input="Metered", output="MeteredOut", group="metered", state=int)
async def double(number: int, ctx) -> int:
    print("more than a pipe holds" * 10_000)
    return 2 * number

print("this module is imported")
"""
_BLOCKED = """
import asyncio, signal, time
from sprocket.functions.instance import end_when_blocked

async def main():
    watching = asyncio.create_task(end_when_blocked(1))
    await asyncio.sleep(1.5)
    print("free", flush=True)
    time.sleep(30)

asyncio.run(main())
"""
_LIMITED = """
import os
from sprocket.functions.instance import limit
allowed = len(os.sched_getaffinity(0))
limit(512, 1, 1)
try:
    bytearray(1 << 30)
except MemoryError:
    print("no memory", len(os.sched_getaffinity(0)), flush=True)
"""


def instance(folder: Path, namesrv: str, port: int) -> ChildProcess:
    """An instance of CODE."""
    source = folder / "functions_metered.py"
    source.write_text(CODE)
    module, package = pack(source)
    (folder / "code.zip").write_bytes(package)
    given = InstanceArguments("metered", str(folder / "code.zip"), module, 3, "here", 0, 0, 0, port)
    arguments = msgspec.json.encode(given).decode()
    return ChildProcess("one", bound("sprocket_cli", "function", "instance", "-n", namesrv, arguments), folder)


def exported(port: int) -> list[str]:
    """Lines of the metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
        return text.splitlines()


async def test_an_instance_reports_and_exports_what_its_functions_do(functions_broker: Broker, tmp_path: Path) -> None:
    broker, port = functions_broker, free_port()
    for topic in ("Metered", "MeteredOut"):
        broker.create_topic(topic, 1)
    async with sprocket.connect(broker.namesrv) as mq:
        await create_registry(mq.admin)
        child = instance(tmp_path, broker.namesrv, port)
        child.launch()
        with pytest.raises(ProcessNotStarted, match="metered-changelog is not there; deploy the function again"):
            child.ready_line(60)
        await create_topics(mq.admin, [Described("double", "metered", ["Metered"], None, "metered-changelog")])
        child.launch()
        try:
            assert child.ready_line(60) == b"ready\n"
            for number in range(3):
                await mq.topic("Metered", int).send(number)
            async with mq.table(STATUS, Status) as statuses:
                key = "metered/here/0"
                await until(lambda: key in statuses and statuses[key].counts["outputs"] == 3)
                found = statuses[key]
            assert (found.version, found.state, found.partitions, found.pid) == (3, "running", 1, child.pid)
            lines = await asyncio.to_thread(exported, port)
            values = {line.partition("{")[0]: line.rpartition(" ")[2] for line in lines if "metered" in line}
            assert values["sprocket_function_inputs_total"] == "3.0"
            assert values["sprocket_function_partitions"] == "1.0"
            assert child.log.read_text().count("more than a pipe holds") == 3 * 10_000
        finally:
            child.end(signal.SIGTERM)


def test_a_handler_that_blocks_the_loop_ends_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", _BLOCKED], capture_output=True, timeout=25, check=False)
    assert (done.stdout, done.returncode) == (b"free\n", -signal.SIGALRM)
    assert b", line 9 in main" in done.stderr  # where it is blocked


def test_a_limited_process_has_so_much_memory_and_so_many_processors() -> None:
    done = subprocess.run([sys.executable, "-c", _LIMITED], capture_output=True, timeout=60, check=False)
    assert done.stdout == b"no memory 1\n", done.stderr

"""How servers start, what they say, and the status that they end with."""

import asyncio
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sprocket.common.errors import ClientError, ConfigError, DiskFailed, InvariantError
from sprocket.common.logs import peer_lines
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.namesrv import PutKVConfigRequestHeader, RegisterTopicRequestHeader
from sprocket_cli import exit_codes
from sprocket_cli.server.server_process import exit_status
from tests.sprocket_cli.programs import BROKER_FLAGS, STOP_TIMEOUT_S, run, server


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_name_server_ends_with_0_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with server(tmp_path, "namesrv", "--set", "listenPort=0") as name_server:
        assert name_server.stop(number) == exit_codes.SUCCESS


def test_broker_that_is_asked_to_stop_leaves_a_clean_store(tmp_path: Path) -> None:
    with server(tmp_path, "broker", *BROKER_FLAGS) as broker:
        store = tmp_path / "store"
        assert broker.facts["store"] == str(store)
        assert (store / "abort").exists()
        assert broker.stop() == exit_codes.SUCCESS
        assert not (store / "abort").exists()
        assert (store / "checkpoint").exists()


@pytest.mark.parametrize("numbers", [[signal.SIGHUP], [signal.SIGTERM, signal.SIGHUP], [signal.SIGHUP, signal.SIGHUP]])
def test_broker_whose_terminal_closes_stops_cleanly(tmp_path: Path, numbers: list[signal.Signals]) -> None:
    with server(tmp_path, "broker", *BROKER_FLAGS) as broker:
        for number in numbers:
            broker.process.send_signal(number)
        assert broker.process.wait(STOP_TIMEOUT_S) == exit_codes.SUCCESS
        assert not (tmp_path / "store" / "abort").exists()


def test_nohup_keeps_a_server_running(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with server(tmp_path, "namesrv", "--set", "listenPort=0") as name_server:
            name_server.process.send_signal(signal.SIGHUP)
            with socket.create_connection(("127.0.0.1", name_server.port), timeout=60):
                assert name_server.process.poll() is None
            assert name_server.stop() == exit_codes.SUCCESS
            assert "SIGHUP" not in name_server.log.read_text()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_killed_broker_leaves_its_abort_file_and_starts_again(tmp_path: Path) -> None:
    with server(tmp_path, "broker", *BROKER_FLAGS) as broker:
        assert broker.stop(signal.SIGKILL) == -signal.SIGKILL
    assert (tmp_path / "store" / "abort").exists()
    with server(tmp_path, "broker", *BROKER_FLAGS) as broker:
        assert broker.stop() == exit_codes.SUCCESS


def test_server_may_open_as_many_files_as_the_system_allows(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = soft // 2
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowered, hard))
    try:
        with server(tmp_path, "namesrv", "--set", "listenPort=0") as name_server:
            assert resource.prlimit(name_server.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
            assert name_server.stop() == exit_codes.SUCCESS
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("work", "status"),
    [("os.kill(os.getpid(), signal.SIGTERM)", exit_codes.SUCCESS), ("raise StoreError('x')", exit_codes.DISK)],
)
def test_server_whose_output_is_on_a_full_disk_runs_and_ends_as_others_do(work: str, status: int) -> None:
    program = f"""
import os, signal, sys
from sprocket.common.errors import StoreError
from sprocket_cli.server.server_process import Process
class Server:
    async def start(self):
        {work}
    async def stop(self):
        pass
sys.exit(Process().run([Server], lambda: "ready"))
"""
    with Path("/dev/full").open("wb") as full:
        assert subprocess.run([sys.executable, "-c", program], stdout=full, stderr=full).returncode == status


def test_start_line_says_what_the_configuration_gives(tmp_path: Path) -> None:
    with server(tmp_path, "broker", *BROKER_FLAGS, "--set", "flushDiskType=SYNC_FLUSH") as broker:
        facts = broker.facts
        assert facts["address"] == f"127.0.0.1:{broker.port}"
        assert (facts["cluster"], facts["role"], facts["brokerName"]) == ("DefaultCluster", "ASYNC_MASTER", "broker-a")
        assert "survives a crash and a power cut" in str(facts["durability"])


def test_standalone_serves_both(tmp_path: Path) -> None:
    with server(tmp_path, "standalone", "--port", "0", "--namesrv-port", "0", *BROKER_FLAGS[-4:]) as both:
        namesrv = str(both.facts["namesrvAddr"])
        assert both.facts["store"] == str(tmp_path / "sprocket-store")
        listed = run(tmp_path, "topic", "list", "-n", namesrv)
        assert listed.returncode == 0, listed.stderr
        assert both.stop() == exit_codes.SUCCESS


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [
        (
            "mqbroker",
            ["--set", "listenPort=x"],
            "command line: listenPort = 'x': allowed is an integer from 0 to 65535",
        ),
        ("mqbroker", ["-c", "none.conf"], "none.conf: cannot be read"),
        ("mqnamesrv", ["--set", "listenPort"], "allowed is key=value"),
        ("mqnamesrv", ["--no-such-flag"], "No such option"),
    ],
)
def test_wrong_usage_ends_with_2(tmp_path: Path, program: str, arguments: list[str], message: str) -> None:
    ended = run(tmp_path, *arguments, program=program)
    assert ended.returncode == exit_codes.USAGE
    assert message in ended.stderr


def test_taken_port_ends_with_2_and_leaves_a_clean_store(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = [*BROKER_FLAGS, "--set", f"listenPort={port}", "--set", "bindAddress=127.0.0.1"]
        ended = run(tmp_path, *flags, program="mqbroker")
    assert ended.returncode == exit_codes.USAGE
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in ended.stderr
    assert "listenPort" in ended.stderr
    assert not (tmp_path / "store" / "abort").exists()


def test_warnings_of_a_file_are_on_stderr(tmp_path: Path) -> None:
    (tmp_path / "b.conf").write_text("brokerNam = a\nsendMessageThreadPoolNums = 4\n")
    ended = run(tmp_path, "-c", "b.conf", "-p", program="mqbroker")
    assert ended.returncode == 0
    assert "Warning: b.conf:1: brokerNam: unknown key; did you mean brokerName?" in ended.stderr
    assert "Warning: b.conf:2: sendMessageThreadPoolNums: a key of RocketMQ" in ended.stderr
    assert "listenPort=10911" in ended.stdout.splitlines()


def test_important_keys_are_fewer(tmp_path: Path) -> None:
    every = run(tmp_path, "-p", program="mqbroker").stdout.splitlines()
    important = run(tmp_path, "-m", program="mqbroker").stdout.splitlines()
    assert set(important) < set(every)
    assert "brokerClusterName=DefaultCluster" in important


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvariantError("a bug"), exit_codes.INVARIANT),
        (DiskFailed("EIO"), exit_codes.DISK),
        (ConfigError("bad"), exit_codes.USAGE),
        (OSError("taken"), exit_codes.USAGE),
        (ClientError("refused"), exit_codes.FAILURE),
    ],
)
def test_status_of_an_error(error: Exception, status: int) -> None:
    assert exit_status(error) == status


def test_what_a_peer_sends_begins_no_line_of_the_log(tmp_path: Path) -> None:
    forged = "v\n2026-11-22T00:00:00.000Z WARNING sprocket.audit event=access decision=allow account=root"
    header = PutKVConfigRequestHeader(namespace=forged, key=forged, value=forged)

    async def put(port: int) -> int:
        client = RemotingClient()
        try:
            return (await client.invoke(f"127.0.0.1:{port}", RequestCode.PUT_KV_CONFIG, header)).code
        finally:
            await client.close()

    with server(tmp_path, "namesrv", "--set", "listenPort=0") as name_server:
        assert asyncio.run(put(name_server.port)) == ResponseCode.SUCCESS
        assert name_server.stop() == exit_codes.SUCCESS
        lines = name_server.log.read_text().splitlines()
    assert not [line for line in lines if line.startswith("2026-11-22T00:00:00.000Z WARNING sprocket.audit")]
    (told,) = [line for line in lines if "event=access" in line]
    assert " event=kv_put namespace=v\\n2026" in told


def test_a_flood_of_bad_requests_and_of_garbage_leaves_a_few_lines_and_their_number(tmp_path: Path) -> None:
    flood, written = 200, peer_lines.MAX_LINES_OF_PEER
    route = b'{"queueDatas":[{"brokerName":"none","perm":6,"readQueueNums":1,"writeQueueNums":1}]}'

    async def attack(port: int) -> None:
        client = RemotingClient()
        try:
            for number in range(flood):
                header = RegisterTopicRequestHeader(topic=f"T{number}")
                await client.invoke(f"127.0.0.1:{port}", RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, route)
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                assert not await reader.read()
                writer.close()
        finally:
            await client.close()

    with server(tmp_path, "namesrv", "--set", "listenPort=0") as name_server:
        asyncio.run(attack(name_server.port))
        assert name_server.stop() == exit_codes.SUCCESS
        lines = name_server.log.read_text().splitlines()
    for event in ("topic_refused", "protocol_error"):
        assert len([line for line in lines if f" event={event} " in line]) == written
        (left_out,) = [line for line in lines if f" event=lines_left_out of={event} " in line]
        assert left_out.endswith(f" lines={flood - written} seconds=60 most_from=127.0.0.1")

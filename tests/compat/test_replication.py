"""A slave of Apache RocketMQ follows a master of ours: byte for byte, from empty and from the middle."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat import maven, ports, wire
from tests.compat.cluster import SMALL_HEAP, ApacheCluster, Server, SprocketCluster

# Three starts of a JVM, on a machine that runs other tests.
pytestmark = [pytest.mark.java, pytest.mark.timeout(500)]

_LIMIT_S = 150.0
_SEGMENT_BYTES = 1 << 20
_GET_BROKER_HA_STATUS = 907


class ApacheSlave(ApacheCluster):
    """A slave of the broker `broker-a` of another cluster."""

    def __init__(self, directory: Path, name_servers: str) -> None:
        super().__init__(directory, brokers=0, name_servers=0)
        home = directory / "slave"
        home.mkdir(parents=True)
        port = ports.free_broker_port()
        properties = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": "1",
            "brokerRole": "SLAVE",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(port),
            "namesrvAddr": name_servers,
            "storePathRootDir": str(home / "store"),
            "storePathCommitLog": str(home / "store" / "commitlog"),
            "mappedFileSizeCommitLog": str(_SEGMENT_BYTES),
            "diskMaxUsedSpaceRatio": "95",
        }
        configuration = home / "broker.conf"
        configuration.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = self._java(configuration, SMALL_HEAP, "org.apache.rocketmq.broker.BrokerStartup")
        self.server = Server("slave", f"127.0.0.1:{port}", command, home, self.environment(home))

    @property
    def log(self) -> Path:
        return self.server.directory / "store" / "commitlog"


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not in {_LIMIT_S:g} s: {what}"
        time.sleep(0.1)


def send(address: str, count: int, size_bytes: int) -> None:
    for number in range(count):
        fields = {
            "a": "PG", "b": "Orders", "c": "TBW102", "d": "4", "e": str(number % 4), "f": "0",
            "g": "1750000000000", "h": "0", "i": f"UNIQ_KEY\x017F0000010B2A18B4AAC2{number:012X}\x02", "j": "0",
            "k": "false", "m": "false",
        }  # fmt: skip
        answer = wire.invoke(address, wire.SEND_MESSAGE_V2, fields, bytes([97 + number % 26]) * size_bytes)
        assert answer.code == 0, answer.remark


def log_of(directory: Path, end: int) -> bytes:
    files = sorted(path for path in directory.iterdir() if path.name.isdigit())
    start = int(files[0].name)
    return b"".join(path.read_bytes() for path in files)[: end - start]


def log_end(address: str) -> int:
    body = wire.invoke(address, _GET_BROKER_HA_STATUS).body.decode()
    return int(body.split('"masterCommitLogMaxOffset":')[1].split(",")[0].rstrip("}"))


def test_an_apache_slave_ends_with_the_same_log(tmp_path: Path) -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    properties = {"mappedFileSizeCommitLog": str(_SEGMENT_BYTES), "brokerIP2": "127.0.0.1"}
    with SprocketCluster(tmp_path / "ours", properties=properties) as cluster:
        master = cluster.brokers[0]
        wire.create_topic(master.address, "Orders", 4)
        send(master.address, 20, 1000)
        slave = ApacheSlave(tmp_path / "theirs", cluster.name_server_address)
        ours = master.directory / "store" / "commitlog"

        def in_step() -> bool:
            status = wire.invoke(master.address, _GET_BROKER_HA_STATUS).body.decode()
            return '"diff":0' in status and '"inSync":true' in status

        slave.server.start()
        try:
            until(in_step, "a new slave has the log")
            send(master.address, 300, 5000)  # over the end of a segment
            until(in_step, "the slave has what was sent meanwhile")
        finally:
            slave.server.stop()
        send(master.address, 300, 5000)
        slave.server.start()
        try:
            until(in_step, "the slave has caught up from the middle")
            end = log_end(master.address)
            assert end > 3 * _SEGMENT_BYTES
            assert log_of(slave.log, end) == log_of(ours, end)
        finally:
            slave.server.stop()

"""A slave of ours follows a SYNC_MASTER of Apache RocketMQ: from empty, from the middle, killed, with segments gone."""

import shutil
import time
from pathlib import Path

import pytest

from tests.compat import maven, wire
from tests.compat.cluster import Server
from tests.compat.replication.replicas import (
    DELETE_EXPIRED_COMMITLOG,
    SEGMENT_BYTES,
    UPDATE_BROKER_CONFIG,
    Replicas,
    commit,
    create_group,
    ha_status,
    is_in_step,
    log_begin,
    log_end,
    offsets_of,
    same_logs,
    send,
    topics_of,
    until,
)

# A start of a JVM, on a machine that runs other tests.
pytestmark = [pytest.mark.java, pytest.mark.timeout(500)]


def test_a_slave_of_ours_follows_a_master_of_apache(tmp_path: Path) -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    with Replicas(tmp_path) as replicas:
        master = replicas.add(
            "apache", "broker-a", 0, "SYNC_MASTER",
            inSyncReplicas="2", cleanResourceInterval="1000", deleteCommitLogFilesInterval="10",
        )  # fmt: skip
        slave = replicas.add("sprocket", "broker-a", 1, "SLAVE")
        master.start()
        replicas.await_registered(master)
        slave.start()
        until(lambda: is_in_step(master.address), "the slave is connected")
        acknowledged_at_once(master)
        tables_follow(master, slave)
        killed_and_back(master, slave)
        acknowledged_at_once(master)
        from_the_last_segment(master, slave)


def acknowledged_at_once(master: Server) -> None:
    """SEND_OK says that the slave has it: FLUSH_SLAVE_TIMEOUT would come after three seconds."""
    begin = time.monotonic()
    wire.create_topic(master.address, "Orders", 4)
    send(master.address, 20, 1000)
    assert time.monotonic() - begin < 60


def tables_follow(master: Server, slave: Server) -> None:
    """Topics and consumer progress; ours asks every ten seconds and saves every second, Apache's saves every five."""
    create_group(master.address, "CG")
    commit(master.address, "CG", "Orders", {0: 5, 1: 7, 3: 1})
    until(lambda: offsets_of(slave) and offsets_of(slave) == offsets_of(master), "the same consumer progress")
    until(lambda: topics_of(slave) == topics_of(master), "the same topics")
    assert isinstance(offsets_of(slave), dict)
    status = ha_status(slave.address)["haClientRuntimeInfo"]
    assert isinstance(status, dict)
    assert status["activated"]
    assert status["maxOffset"] == log_end(master.address)


def killed_and_back(master: Server, slave: Server) -> None:
    """SIGKILL in the middle of a stream; meanwhile the master deletes what it has had for long."""
    send(master.address, 150, 5000, waits=False)
    slave.kill()
    send(master.address, 450, 5000, waits=False)
    slave.start()
    until(lambda: is_in_step(master.address), "caught up from the middle")
    same_logs(master, slave, log_end(master.address))
    slave.stop()
    assert wire.invoke(master.address, UPDATE_BROKER_CONFIG, {}, b"fileReservedTime=0").code == 0
    assert wire.invoke(master.address, DELETE_EXPIRED_COMMITLOG).code == 0
    until(lambda: log_begin(master) > 0, "the master has deleted segments")
    assert wire.invoke(master.address, UPDATE_BROKER_CONFIG, {}, b"fileReservedTime=72").code == 0
    send(master.address, 20, 5000, waits=False)
    slave.start()
    until(lambda: is_in_step(master.address), "caught up where the master's first segments are gone")
    start = same_logs(master, slave, log_end(master.address))
    assert start > 0


def from_the_last_segment(master: Server, slave: Server) -> None:
    """A slave without a log begins where Apache's master begins with it: at its last segment."""
    slave.stop()
    shutil.rmtree(slave.directory / "store")
    slave.start()
    until(lambda: is_in_step(master.address), "a slave that is new has the last segment")
    end = log_end(master.address)
    assert log_begin(slave) == end - end % SEGMENT_BYTES
    same_logs(master, slave, end)
    until(lambda: offsets_of(slave) == offsets_of(master), "the same consumer progress again")

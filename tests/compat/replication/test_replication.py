"""A slave of Apache RocketMQ follows a SYNC_MASTER of ours: byte for byte, from empty and from the middle."""

from pathlib import Path

import pytest

from tests.compat import maven, wire
from tests.compat.cluster import Server
from tests.compat.replication.replicas import (
    SEGMENT_BYTES,
    Replicas,
    commit,
    config,
    create_group,
    is_in_step,
    log_end,
    offsets_of,
    same_logs,
    send,
    topics_of,
    until,
)

# Two starts of a JVM, on a machine that runs other tests.
pytestmark = [pytest.mark.java, pytest.mark.timeout(500)]

_SLAVE_NOT_AVAILABLE = 11
_SET_MESSAGE_REQUEST_MODE = 401
_FOLLOWED = b'{"topic":"Orders","consumerGroup":"CG","mode":"POP","popShareQueueNum":2}'


@pytest.mark.parametrize("waits_for_tables", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_apache_slave_ends_with_the_same_log(tmp_path: Path, waits_for_tables: bool) -> None:
    try:
        maven.apache_classpath()
    except maven.JavaMissingError as missing:
        pytest.skip(str(missing))
    with Replicas(tmp_path) as replicas:
        # Its slave comes later than an empty store waits for one.
        master = replicas.add("sprocket", "broker-a", 0, "SYNC_MASTER", haTailRecoveryWait="0")
        slave = replicas.add("apache", "broker-a", 1, "SLAVE")
        master.start()
        replicas.await_registered(master)
        wire.create_topic(master.address, "Orders", 4)
        # There is no slave to wait for yet, and the answer says so.
        send(master.address, 20, 1000, allowed=(_SLAVE_NOT_AVAILABLE,))
        create_group(master.address, "CG")
        commit(master.address, "CG", "Orders", {0: 3, 1: 2})
        assert wire.invoke(master.address, _SET_MESSAGE_REQUEST_MODE, {}, _FOLLOWED).code == 0
        slave.start()
        until(lambda: is_in_step(master.address), "a new slave has the log")
        send(master.address, 300, 5000)  # over the end of a segment, each acknowledged by the slave
        slave.stop()
        send(master.address, 300, 5000, waits=False)
        slave.start()
        until(lambda: is_in_step(master.address), "the slave has caught up from the middle")
        end = log_end(master.address)
        assert end > 3 * SEGMENT_BYTES
        assert same_logs(master, slave, end) == 0
        send(master.address, 20, 1000)
        if waits_for_tables:
            tables_follow(master, slave)


def tables_follow(master: Server, slave: Server) -> None:
    """Apache's slave asks for tables when it has run for a minute."""
    until(lambda: offsets_of(slave) and offsets_of(slave) == offsets_of(master), "the same consumer progress")
    until(lambda: topics_of(slave) == topics_of(master), "the same topics")
    until(lambda: "CG" in str(config(slave, "subscriptionGroup.json")), "the group")
    until(lambda: config(slave, "messageRequestMode.json") == config(master, "messageRequestMode.json"), "the modes")

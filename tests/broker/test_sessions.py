"""A slave beside its master, both Sprocket: their session, who may have one, the tables in it, and logs that parted."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from broker.config.broker_config import BrokerRole
from broker.server import Broker
from ha.shared_secret import read_secret
from ha.slave_session import SlaveSession
from sprocket.common.errors import ConfigError, RestartNeeded, SprocketError, StoreError
from sprocket.common.figures import values
from sprocket.remoting.bodies.group import SubscriptionGroupConfig
from sprocket.remoting.bodies.namespace import NamespacePolicy
from sprocket.remoting.bodies.pop import SetMessageRequestModeRequestBody
from sprocket.remoting.bodies.quota import Quota
from sprocket.remoting.codec.fastjson import dumps
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.headers.admin import DeleteTopicRequestHeader
from sprocket.remoting.headers.ha import NegotiateHaSessionRequestHeader, NegotiateHaSessionResponseHeader
from sprocket.remoting.headers.offset import QueryConsumerOffsetRequestHeader
from store.flush.confirmation import Arrival
from tests.broker.fake_slave import FakeSlave
from tests.broker.insides import core_of
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker, stored
from tests.broker.slave.test_slave_synchronize import in_step, name_server
from tests.running_copy import copy_of_running
from tests.store.rig import message
from tests.waiting import until

STORE = {"timer_precision_ms": 100, "timer_flush_interval_ms": 20}
WAIT = {"ha_tail_recovery_wait": 60_000}
SLAVE: dict[str, Any] = {"broker_id": 1, "broker_role": BrokerRole.SLAVE}


@asynccontextmanager
async def slave_of(
    root: Path, master: Broker, *, fatal: list[SprocketError] | None = None, **store: Any
) -> AsyncIterator[Broker]:
    """A slave that knows its master."""
    settings = STORE | store
    on_fatal = None if fatal is None else fatal.append
    async with running_broker(root, store=settings, on_fatal=on_fatal, **SLAVE) as (slave, _):
        assert slave.following is not None
        slave.following.master_found(master.address, master.registration.ha_address)
        yield slave


def session_of(slave: Broker) -> SlaveSession | None:
    assert slave.following is not None
    connection = slave.following.follower.connection
    link = None if connection is None else connection.link
    return link if isinstance(link, SlaveSession) and link.is_streaming else None


async def test_tables_come_in_the_stream_of_the_log(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "master", store=STORE) as (master, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        for number in range(20):
            await client.send(b"%d" % number, queue_id=number % 2)
        master.offsets.commit(GROUP, TOPIC, 0, 7)
        async with slave_of(tmp_path / "slave", master) as slave:
            await until(lambda: session_of(slave) and in_step(master, slave))
            assert not slave.synchronize.may_poll()
            master.offsets.commit(GROUP, TOPIC, 0, 9)
            master.offsets.commit("Other", TOPIC, 1, 3)
            await until(lambda: slave.offsets.query(GROUP, TOPIC, 0) == 9)
            assert slave.offsets.query("Other", TOPIC, 1) == 3
            master.offsets.remove("Other", TOPIC)
            mode = SetMessageRequestModeRequestBody(TOPIC, GROUP, "POP", 2)
            await client.ask_well(RequestCode.SET_MESSAGE_REQUEST_MODE, body=dumps(mode))
            await client.send(b"later", DELAY="1")
            await until(lambda: slave.schedule.offsets.delivered.get(1) == 1)
            await until(lambda: in_step(master, slave))
            assert slave.offsets.query("Other", TOPIC, 1) == -1
            (connection,) = master.replication.listener.connections
            assert connection.identity == ("DefaultCluster", "broker-a", 1)
            assert connection.link.acked_offset == master.store.wrote_offset


async def test_a_slave_has_its_masters_quotas_and_keeps_them_over_a_restart(tmp_path: Path) -> None:
    quota = Quota("topic:Orders", messages_in=7)
    async with (
        running_broker(tmp_path / "master", store=STORE) as (master, client),
        slave_of(tmp_path / "slave", master) as slave,
    ):
        await until(lambda: session_of(slave))
        await client.ask_well(RequestCode.SET_QUOTA, body=dumps(quota))
        quotas = core_of(slave).quotas
        await until(lambda: quotas.by_name == {quota.name: quota})
        assert quotas.of_send("Orders")[0].rate == 7
    async with running_broker(tmp_path / "slave", store=STORE, **SLAVE) as (slave, client):
        assert core_of(slave).quotas.by_name == {quota.name: quota}
        assert (await client.ask(RequestCode.SET_QUOTA, body=dumps(quota))).code != ResponseCode.SUCCESS


async def test_a_slave_has_the_limits_of_namespaces_and_obeys_them_as_the_master(tmp_path: Path) -> None:
    policy = NamespacePolicy(name="shop|orders", max_topics=1)
    first, second = create("shop|orders%First"), create("shop|orders%Second")
    async with (
        running_broker(tmp_path / "master", store=STORE) as (master, client),
        slave_of(tmp_path / "slave", master) as slave,
    ):
        await until(lambda: session_of(slave))
        await client.ask_well(RequestCode.SET_NAMESPACE, body=dumps(policy))
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, first)
        await until(lambda: first.topic in core_of(slave).topics)
        assert core_of(slave).namespaces.by_name == {policy.name: policy}
    async with running_broker(tmp_path / "slave", store=STORE) as (_, client):
        refused = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, second)
        assert "maxTopics" in (refused.remark or "")


async def test_with_sync_master_a_change_of_any_table_is_answered_when_the_slave_has_it(tmp_path: Path) -> None:
    sync = BrokerRole.SYNC_MASTER
    policy, code = NamespacePolicy(name="shop|orders", max_topics=9), RequestCode
    async with running_broker(tmp_path / "master", store=STORE, broker_role=sync) as (master, client):
        end = master.store.wrote_offset
        answer = await client.ask_well(code.UPDATE_AND_CREATE_TOPIC, create("Alone"))
        assert "at this broker alone" in (answer.remark or "") and master.store.wrote_offset == end
        async with slave_of(tmp_path / "slave", master) as slave:
            await until(lambda: session_of(slave) and in_step(master, slave))
            for number in range(3):
                for name, request, body in (
                    ("quotas", code.SET_QUOTA, Quota(f"topic:T{number}", messages_in=7)),
                    ("namespaces", code.SET_NAMESPACE, replace(policy, max_groups=number + 1)),
                    ("subscriptionGroup", code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                     SubscriptionGroupConfig(f"G{number}")),
                    ("messageRequestMode", code.SET_MESSAGE_REQUEST_MODE,
                     SetMessageRequestModeRequestBody("Alone", "G0", "POP", number)),
                ):  # fmt: skip
                    await client.ask_well(request, body=dumps(body))
                    ours, theirs = (one.tables.named(name) for one in (master, slave))
                    assert ours is not None and theirs is not None and ours.encode() == theirs.encode(), name
                await client.ask_well(code.UPDATE_AND_CREATE_TOPIC, create(f"T{number}"))
                assert f"T{number}" in slave.topics
            await client.ask_well(code.DELETE_QUOTA, body=b"topic:T1")
            assert set(core_of(slave).quotas.by_name) == {"topic:T0", "topic:T2"}


async def test_a_slave_that_has_a_message_has_its_topic(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "master", store=STORE) as (master, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create("Before"))
        await client.send(topic="Before")
        async with slave_of(tmp_path / "slave", master) as slave:
            unknown: list[str] = []
            arrived: list[str] = []

            def look(arrivals: list[Arrival]) -> None:
                arrived.extend(queue.topic for queue, _, _ in arrivals)
                unknown.extend(queue.topic for queue, _, _ in arrivals if queue.topic not in slave.topics)

            slave.store.on_arrival.append(look)
            await until(lambda: arrived == ["Before"])
            # Between two looks at the other tables.
            for number in range(5):
                await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(f"New{number}"))
                await client.send(topic=f"New{number}")
            await until(lambda: len(arrived) == 6)
            assert unknown == []
            await client.ask_well(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic="New0"))
            await until(lambda: "New0" not in slave.topics)


async def test_a_slave_that_connects_again_counts_once(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "master", store=STORE) as (master, client):
        await client.send()
        replication = master.replication
        async with slave_of(tmp_path / "one", master) as first:
            await until(lambda: session_of(first))
            async with slave_of(tmp_path / "two", master) as second:
                # Another store under the same id: the one that connected last is the slave.
                await until(lambda: session_of(second) and _acked(master) == [master.store.wrote_offset])
                assert len(replication.replicas.offsets()) == 1


def _acked(master: Broker) -> list[int]:
    return [connection.link.acked_offset for connection in master.replication.listener.connections]


async def test_what_is_flushed_counts_if_the_master_says_so(tmp_path: Path) -> None:
    settings = STORE | {"ha_ack_flushed_offset": True}
    role = BrokerRole.SYNC_MASTER
    async with (
        running_broker(tmp_path / "master", store=settings, broker_role=role) as (master, client),
        slave_of(tmp_path / "slave", master) as slave,
    ):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await until(lambda: session_of(slave) and master.role.serves_group)
        for number in range(5):
            await until(lambda: master.store.confirmation.awaited_offset < 1 << 62)
            ((_, offset, size),) = master.store.append([message(TOPIC, 0, b"%d" % number)])
            flushed = await asyncio.wait_for(stored_when(master, slave, offset + size), 60)
            assert flushed == offset + size


async def test_a_slave_acknowledges_before_its_listeners_hear_of_the_messages(tmp_path: Path) -> None:
    async with (
        running_broker(tmp_path / "master", store=STORE) as (master, client),
        slave_of(tmp_path / "slave", master) as slave,
    ):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        await until(lambda: session_of(slave) and in_step(master, slave))
        left: list[bytes] = []

        def arrived(_: list[Arrival]) -> None:
            session = session_of(slave)
            assert session is not None
            left.append(session.acknowledge(0.0))

        slave.store.on_arrival.append(arrived)
        for number in range(5):
            await client.send(b"%d" % number)
        await until(lambda: slave.store.wrote_offset == master.store.wrote_offset)
        assert left and not any(left)


def stored_when(master: Broker, slave: Broker, end: int) -> asyncio.Future[int]:
    """What the slave has flushed at the moment at which a send that ends at `end` is answered SEND_OK."""
    flushed: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def stored(error: StoreError | None, is_replicated: bool) -> None:
        assert error is None
        assert is_replicated
        flushed.set_result(slave.store.flushed_offset)

    master.store.confirmation.when_stored(end, stored)
    return flushed


# Who may have a session


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("a long secret\n")
    file.chmod(0o600)
    return file


@asynccontextmanager
async def two_ends(
    tmp_path: Path, master: dict[str, Any], slave: dict[str, Any]
) -> AsyncIterator[tuple[Broker, Broker]]:
    """A master that has a message, and one that is to be its slave."""
    async with running_broker(tmp_path / "m", store=STORE | master) as (broker, client):
        await client.send(b"x" * 100)
        async with slave_of(tmp_path / "s", broker, **slave) as copy:
            yield broker, copy


async def meet(tmp_path: Path, master: dict[str, Any], slave: dict[str, Any]) -> None:
    """Wait until the slave has what the master has."""
    async with two_ends(tmp_path, master, slave) as (broker, copy):
        await until(lambda: copy.store.wrote_offset == broker.store.wrote_offset)


async def part(tmp_path: Path, master: dict[str, Any], slave: dict[str, Any]) -> bool:
    """Whether the slave has nothing when the master has ended the first connection, or was not asked for one."""
    async with two_ends(tmp_path, master, slave) as (_, copy):
        await _ended(copy)
        return copy.store.wrote_offset == 0


async def _ended(slave: Broker) -> None:
    assert slave.following is not None
    follower = slave.following.follower
    for _ in range(100):
        if follower.connection is not None:
            break
        await asyncio.sleep(0.01)
    while follower.connection is not None:
        await asyncio.sleep(0.01)


async def test_ends_with_the_same_secret_meet_and_others_do_not(tmp_path: Path, secret: Path) -> None:
    other = tmp_path / "other"
    other.write_text("something else")
    known, wrong, plain = {"ha_secret_file": str(secret)}, {"ha_secret_file": str(other)}, {"ha_session_enable": False}
    await meet(tmp_path / "same", known, known)
    assert await part(tmp_path / "wrong", known, wrong)
    assert await part(tmp_path / "master", known, {})
    assert await part(tmp_path / "slave", {}, known)
    assert await part(tmp_path / "plain slave", known, plain)
    await meet(tmp_path / "admitted", known | {"ha_allow_plain_peers": True}, plain)
    await meet(tmp_path / "plain", plain, plain)


def test_a_secret_is_checked(tmp_path: Path, secret: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_secret(secret) == b"a long secret"
    assert caplog.messages == []
    secret.chmod(0o644)
    read_secret(secret)
    assert "others-may-read-it" in caplog.text
    empty = tmp_path / "empty"
    empty.write_text(" \n")
    for path in (empty, tmp_path, tmp_path / "missing"):
        with pytest.raises(ConfigError, match="haSecretFile"):
            read_secret(path)


@pytest.mark.code(RequestCode.NEGOTIATE_HA_SESSION)
async def test_negotiation(tmp_path: Path) -> None:
    header = NegotiateHaSessionRequestHeader(
        cluster_name="DefaultCluster", broker_name="broker-a", broker_id=1, version=7
    )
    async with running_broker(tmp_path, store=STORE) as (_, client):
        answer = await client.ask_well(RequestCode.NEGOTIATE_HA_SESSION, header)
        said = answer.header(NegotiateHaSessionResponseHeader)
        assert said.version == 1
        assert said.epoch > 0
        header.broker_name = "broker-b"
        refused = await client.ask(RequestCode.NEGOTIATE_HA_SESSION, header)
        assert refused.code == ResponseCode.SYSTEM_ERROR
    async with running_broker(tmp_path, store={"ha_session_enable": False}) as (_, client):
        answer = await client.ask(RequestCode.NEGOTIATE_HA_SESSION, header)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


# Logs that parted


async def send_all(client: TestClient, *bodies: bytes) -> None:
    for body in bodies:
        await client.send(body * 20)


async def lose_tail(tmp_path: Path, *, is_clean: bool, kept: int = 5) -> None:
    """Ten messages at a master and its slave; the master has only the first `kept` on its disk."""
    async with running_broker(tmp_path / "master", store=STORE) as (master, client):
        await send_all(client, *(b"%d" % number for number in range(kept)))
        async with slave_of(tmp_path / "slave", master) as slave:
            master.store.flush()
            copy_of_running(tmp_path / "master", tmp_path / "early")
            await send_all(client, *(b"%d" % number for number in range(kept, 10)))
            master.offsets.commit(GROUP, TOPIC, 0, 10)
            await until(lambda: session_of(slave) and slave.offsets.query(GROUP, TOPIC, 0) == 10)
            await until(lambda: in_step(master, slave))
    shutil.rmtree(tmp_path / "master")
    (tmp_path / "early").rename(tmp_path / "master")
    abort = tmp_path / "master" / "store" / "abort"
    assert abort.exists()
    if is_clean:
        abort.unlink()


def bodies(broker: Broker) -> list[bytes]:
    return [bytes(stored(broker, TOPIC, 0, at).body)[:1] for at in range(broker.store.max_offset(TOPIC, 0))]


async def test_a_slave_gives_up_what_its_master_lost_and_keeps_it_aside(tmp_path: Path) -> None:
    await lose_tail(tmp_path, is_clean=False)
    async with running_broker(tmp_path / "master", store=STORE) as (master, client):  # an ASYNC_MASTER
        await send_all(client, b"a", b"b")
        fatal: list[SprocketError] = []
        async with slave_of(tmp_path / "slave", master, fatal=fatal):
            await until(lambda: fatal)
        assert isinstance(fatal[0], RestartNeeded)
        async with slave_of(tmp_path / "slave", master) as slave:
            await until(lambda: session_of(slave) and in_step(master, slave))
            assert bodies(slave) == [b"0", b"1", b"2", b"3", b"4", b"a", b"b"]
    (folder,) = (tmp_path / "slave" / "store" / "cut").iterdir()
    kept = b"".join(path.read_bytes() for path in folder.iterdir())
    assert all(b"%d" % number * 20 in kept for number in range(5, 10))


@pytest.mark.parametrize("kept", [5, 0])
async def test_a_synchronous_master_fetches_its_lost_tail_before_it_accepts_messages(tmp_path: Path, kept: int) -> None:
    await lose_tail(tmp_path, is_clean=False, kept=kept)
    role, settings = BrokerRole.SYNC_MASTER, STORE | {"ha_tail_recovery_wait": 60_000}
    async with running_broker(tmp_path / "master", store=settings, broker_role=role) as (master, client):
        refused = client.send(b"too early")
        with pytest.raises(AssertionError, match="haTailRecoveryWait"):
            await refused
        assert not master.role.serves_group
        assert values(master.replication.figures())["haTailRecovery"] == "true"
        async with slave_of(tmp_path / "slave", master) as slave:
            await until(lambda: session_of(slave) and master.role.serves_group)
            # The slave that gave the tail back comes once more, as a slave.
            await until(lambda: values(master.replication.figures())["haSessions"] == "1")
            status = values(master.replication.figures())
            assert (status["haTailRecovery"], status["haAuthentication"]) == ("false", "none")
            assert bodies(master) == [b"%d" % number for number in range(10)]
            await client.send(b"x" * 20)
            await until(lambda: in_step(master, slave))
            assert not (tmp_path / "slave" / "store" / "cut").exists()


async def test_nobody_sees_what_a_master_alone_has_after_a_start(tmp_path: Path) -> None:
    """With minInSyncReplicas: it may have stopped, cleanly, with messages that its slaves do not have."""
    async with running_broker(tmp_path / "master", store=STORE) as (_, client):
        await send_all(client, b"0", b"1")
    role, settings = BrokerRole.SYNC_MASTER, STORE | {"ha_tail_recovery_wait": 60_000, "min_in_sync_replicas": 2}
    async with running_broker(tmp_path / "master", store=settings, broker_role=role) as (master, client):
        await client.heartbeat("C1", TOPIC)
        hidden = await client.pull()
        assert hidden.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert not hidden.body
        async with slave_of(tmp_path / "slave", master) as slave:
            await until(lambda: master.role.shows_log)
            assert slave.store.wrote_offset == master.store.wrote_offset
            assert (await client.pull()).code == ResponseCode.SUCCESS
    settings["min_in_sync_replicas"] = 1
    async with running_broker(tmp_path / "master", store=settings, broker_role=role) as (master, client):
        await client.heartbeat("C1", TOPIC)
        assert (await client.pull()).code == ResponseCode.SUCCESS


async def test_a_synchronous_master_with_a_new_disk_takes_log_and_tables_from_its_slave(tmp_path: Path) -> None:
    await lose_tail(tmp_path, is_clean=False)
    shutil.rmtree(tmp_path / "master")
    async with running_broker(tmp_path / "master", store=STORE | WAIT, broker_role=BrokerRole.SYNC_MASTER) as (
        master,
        client,
    ):
        with pytest.raises(AssertionError, match="haTailRecoveryWait"):
            await client.send(b"too early")
        query = QueryConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0)
        assert (await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (await client.pull()).code == ResponseCode.SERVICE_NOT_AVAILABLE
        async with slave_of(tmp_path / "slave", master) as slave:
            await until(lambda: session_of(slave) and master.role.serves_group)
            assert bodies(master) == [b"%d" % number for number in range(10)]
            assert (await client.pull()).code == ResponseCode.SUCCESS
            assert master.offsets.query(GROUP, TOPIC, 0) == 10
            await client.send(b"x" * 20)
            await until(lambda: in_step(master, slave))
            assert slave.offsets.query(GROUP, TOPIC, 0) == 10
            assert not (tmp_path / "slave" / "store" / "cut").exists()
    async with running_broker(tmp_path / "master", store=STORE) as (master, _):  # all of it was saved
        assert bodies(master)[:10] == [b"%d" % number for number in range(10)]
        assert TOPIC in master.topics
        assert master.offsets.query(GROUP, TOPIC, 0) == 10


async def test_an_asynchronous_master_with_a_new_disk_takes_nothing_from_its_slave_and_destroys_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await lose_tail(tmp_path, is_clean=False)
    shutil.rmtree(tmp_path / "master")
    async with running_broker(tmp_path / "master", store=STORE) as (master, client):
        assert master.role.serves_group  # it waits for nobody
        async with slave_of(tmp_path / "slave", master) as slave:
            await until(lambda: "the master's store is empty" in caplog.text)
            assert "never empty this store" in caplog.text
            await client.send(b"behind the slave's back")
            assert bodies(slave) == [b"%d" % number for number in range(10)]
            assert slave.offsets.query(GROUP, TOPIC, 0) == 10
            assert not (tmp_path / "slave" / "store" / "cut").exists()


async def test_an_empty_master_begins_at_once_with_an_empty_slave(tmp_path: Path) -> None:
    role = BrokerRole.SYNC_MASTER
    async with running_broker(tmp_path / "master", store=STORE | WAIT, broker_role=role) as (master, client):
        assert not master.role.serves_group
        async with slave_of(tmp_path / "slave", master) as slave:
            await until(lambda: master.role.serves_group)
            await client.send(b"x" * 20)
            await until(lambda: in_step(master, slave))


async def test_an_empty_master_begins_at_once_with_an_empty_plain_slave(tmp_path: Path) -> None:
    role = BrokerRole.SYNC_MASTER
    async with running_broker(tmp_path / "master", store=STORE | WAIT, broker_role=role) as (master, _):
        slave = await FakeSlave.connect(master.config.broker.ha_listen_port)
        slave.report(0)
        await until(lambda: master.role.serves_group)
        await slave.close()


async def test_an_empty_master_waits_for_a_slave_that_name_servers_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await lose_tail(tmp_path, is_clean=False)
    shutil.rmtree(tmp_path / "master")
    settings = STORE | {"ha_tail_recovery_wait": 50}
    async with name_server() as address:
        # A slave that finds no way to the master's port for slaves.
        lost = SLAVE | {"store": STORE | {"ha_master_address": "127.0.0.1:9"}, "namesrv_addr": address}
        async with running_broker(tmp_path / "slave", **lost) as (slave, _):
            assert await slave.registration.wait_registered(10)
            changes = {"namesrv_addr": address, "broker_role": BrokerRole.SYNC_MASTER}
            async with running_broker(tmp_path / "master", store=settings, **changes) as (master, _):
                await until(lambda: "event=empty_master_waits" in caplog.text)
                await asyncio.sleep(0.3)
                assert not master.role.serves_group
                assert "may hold the only copy" in caplog.text
                assert slave.following is not None
                slave.following.follower.follow(master.registration.ha_address)
                await until(lambda: master.role.serves_group)
                assert len(bodies(master)) == 10


async def test_an_empty_master_without_other_members_waits_a_bounded_time(tmp_path: Path) -> None:
    settings, role = STORE | {"ha_tail_recovery_wait": 50}, BrokerRole.SYNC_MASTER
    async with running_broker(tmp_path / "alone", store=settings, broker_role=role) as (master, _):
        assert not master.role.serves_group
        await until(lambda: master.role.serves_group)
    async with name_server() as address:
        changes = {"namesrv_addr": address, "broker_role": role}
        async with running_broker(tmp_path / "known", store=settings, **changes) as (master, _):
            await until(lambda: master.role.serves_group)
    off = STORE | {"ha_tail_recovery_wait": 0}
    async with running_broker(tmp_path / "off", store=off, broker_role=role) as (master, _):
        assert master.role.serves_group


async def test_the_wait_for_a_lost_tail_is_bounded_and_not_after_a_clean_stop(tmp_path: Path) -> None:
    await lose_tail(tmp_path, is_clean=True)
    role = BrokerRole.SYNC_MASTER
    async with running_broker(tmp_path / "master", store=STORE, broker_role=role) as (master, _):
        assert master.role.serves_group
    (tmp_path / "master" / "store" / "abort").touch()
    settings = STORE | {"ha_tail_recovery_wait": 50}
    async with running_broker(tmp_path / "master", store=settings, broker_role=role) as (master, _):
        assert not master.role.serves_group
        await until(lambda: master.role.serves_group)


async def test_a_slave_of_the_plain_protocol_is_asked_for_nothing_new(tmp_path: Path) -> None:
    """As one of RocketMQ: it finds its master at name servers, and follows."""
    async with (
        name_server() as address,
        running_broker(tmp_path / "master", namesrv_addr=address) as (master, client),
    ):
        assert await master.registration.wait_registered(10)
        changes = SLAVE | {"namesrv_addr": address}
        async with running_broker(tmp_path / "slave", store={"ha_session_enable": False}, **changes) as (slave, _):
            await send_all(client, b"a")
            await until(lambda: slave.store.wrote_offset == master.store.wrote_offset > 0)
            assert session_of(slave) is None
            assert master.replication.listener.sessions == []

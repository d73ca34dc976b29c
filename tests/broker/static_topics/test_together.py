"""Static topics together with access control, slaves, name servers that are told late, and damaged files."""

from pathlib import Path
from typing import Any

import pytest

from broker.config.broker_config import BrokerRole
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.common.errors import StoreError
from sprocket.remoting.bodies.topic_queue_mapping import TopicQueueMappingTable
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.offset import QueryConsumerOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from tests.broker.auth.test_users import GUARDED, INNER, make_alice
from tests.broker.insides import core_of
from tests.broker.rig import GROUP, TOPIC, TestClient, create, running_broker
from tests.broker.slave.test_slave_synchronize import FAST
from tests.broker.static_topics.rig import A, B, Site, body, item, records, site
from tests.broker.test_sessions import STORE
from tests.waiting import until

LOGIC = 10_000


def sign(two: Site, credentials: Credentials) -> None:
    for client in two.clients.values():
        client.remoting = RemotingClient(credentials=credentials)


async def test_brokers_with_access_control_ask_each_other_with_their_own_account(tmp_path: Path) -> None:
    async with site(tmp_path, store=STORE, auto_create_subscription_group=True, **GUARDED) as two:
        plain = [client.remoting for client in two.clients.values()]
        sign(two, INNER)
        await two.created()
        await two.clients[A].send(b"old")
        await two.remapped(LOGIC)
        await two.clients[B].pull()  # makes the group on both brokers
        for client in two.clients.values():
            await make_alice(client)
        alice = TestClient(two.clients[B].address)
        alice.remoting = RemotingClient(credentials=Credentials("alice", "secret of alice"))
        response = await alice.pull()
        assert [bytes(record.body) for record in records(response.body)] == [b"old"]
        commit = UpdateConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=1)
        query = QueryConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0)
        await two.clients[B].ask_well(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        assert (await two.clients[B].ask_well(RequestCode.QUERY_CONSUMER_OFFSET, query)).ext_fields["offset"] == "1"
        refused = await alice.ask(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, create(), body(B, {}, epoch=9))
        assert refused.code == ResponseCode.NO_PERMISSION
        for remoting in (alice.remoting, *plain):
            await remoting.close()


async def test_a_slave_has_the_mappings_of_its_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.slave.slave_synchronize._TURN_S", 0.05)
    async with site(tmp_path, store=FAST, auto_create_subscription_group=True) as two:
        await two.created()
        role: dict[str, Any] = {"broker_id": 1, "broker_role": BrokerRole.SLAVE, "broker_name": A}
        async with running_broker(tmp_path / "slave", store=FAST, namesrv_addr=two.name_server, **role) as pair:
            slave, client = pair
            slave.synchronize.all_s = 0.0
            mappings, copies = core_of(two.brokers[A]).mappings, core_of(slave).mappings
            await until(lambda: copies.get(TOPIC) is not None and copies.get(TOPIC) == mappings.get(TOPIC))
            await two.remapped(LOGIC)
            await until(lambda: copies.get(TOPIC) == mappings.get(TOPIC))
            refused = await client.pull()
            assert (refused.code, "masters" in (refused.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
            refused = await client.ask(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, create(), body(A, {}, epoch=9))
            assert refused.code != ResponseCode.SUCCESS
            mappings.delete(TOPIC)
            await until(lambda: copies.get(TOPIC) is None)
        saved = (tmp_path / "slave" / "store" / "config" / "topicQueueMapping.json").read_bytes()
        assert loads(saved, TopicQueueMappingTable).topic_queue_mapping_info_map == {}


async def test_the_file_is_that_of_rocketmq_and_a_damaged_one_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "store" / "config" / "topicQueueMapping.json"
    path.parent.mkdir(parents=True)
    # As fastjson writes it: keys that are numbers have no quotes.
    detail = body(A, {0: [item(0, 1, A, 0)]}).decode()
    version = '{"counter":3,"stateVersion":0,"timestamp":1}'
    path.write_text(f'{{"dataVersion":{version},"topicQueueMappingInfoMap":{{"{TOPIC}":{detail}}}}}')
    async with running_broker(tmp_path) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        sent = await client.send(b"one")
        assert (sent.queue_id, broker.store.max_offset(TOPIC, 1)) == (0, 1)
        assert core_of(broker).mappings.data_version.counter == 3
    path.write_bytes(b"{")
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    with pytest.raises(StoreError, match="topicQueueMapping"):
        async with running_broker(tmp_path):
            pass


async def test_a_name_server_that_starts_anew_gets_the_mappings(tmp_path: Path) -> None:
    async with site(tmp_path) as two:
        await two.created()
        await two.remapped(LOGIC)
        port = two.names.port
        await two.names.stop()
        names = NameServer(NamesrvConfig(listen_port=port, bind_address="127.0.0.1"))
        await names.start()
        try:
            await until(lambda: len(names.table.mappings.get(TOPIC, ())) == 2)
            found = {name: info.curr_id_map for name, info in names.table.mappings[TOPIC].items()}
            assert found == {A: {}, B: {"0": 1, "1": 0}}
        finally:
            await names.stop()


async def test_a_new_mapping_of_an_unchanged_topic_gives_the_topics_a_new_version(tmp_path: Path) -> None:
    async with site(tmp_path) as two:
        await two.created()
        topics = core_of(two.brokers[A]).topics
        before, config = topics.data_version, topics.get(TOPIC)
        await two.remapped(LOGIC)
        # By the version, a name server that was down sees that it missed something.
        assert topics.data_version != before
        assert topics.get(TOPIC) == config

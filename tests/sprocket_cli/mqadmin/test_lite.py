"""`mqadmin` about lite topics, with RocketMQ's lines: two brokers with a parent topic; the first has a group."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.client.admin.admin_client import AdminClient, AdminError
from tests.background import in_background
from tests.broker.lite.rig import GROUP, LIGHT, PARENT, ack, create_parent, lite_broker, popped, send_lite, subscribe
from tests.broker.processor.test_auth_admin import GUARDED, ROOT
from tests.broker.rig import running_broker
from tests.sprocket_cli.mqadmin.conftest import Admin, runner

_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
_ROUTE = ("-p", PARENT)
_OF_GROUP = (*_ROUTE, "-g", GROUP)


class Site:
    """The servers' addresses, and mqadmin with this name server."""

    def __init__(self, namesrv: str, addresses: dict[str, str]) -> None:
        self.namesrv = namesrv
        self.addresses = addresses
        self.tool = runner(namesrv)


@asynccontextmanager
async def name_server() -> AsyncIterator[str]:
    """Yields the address."""
    names = NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1"))
    await names.start()
    try:
        yield f"127.0.0.1:{names.port}"
    finally:
        await names.stop()


async def await_route(namesrv: str, topic: str, brokers: int) -> None:
    """Wait until the name server has `topic` on so many brokers: it learns of it a moment later."""
    async with AdminClient(namesrv) as admin:
        while True:
            try:
                if len((await admin.topic_route(topic)).broker_datas) == brokers:
                    return
            except AdminError:
                pass  # not yet known
            await asyncio.sleep(0.02)


@asynccontextmanager
async def lite_site(root: Path) -> AsyncIterator[Site]:
    """Of `s1` one of three messages is acknowledged, of `s2` none; both are popped.  `empty` has no message."""
    async with (
        name_server() as namesrv,
        lite_broker(root / "a", expiration="60", namesrv_addr=namesrv) as (one, client),
        running_broker(root / "b", store=LIGHT, broker_name="broker-b", namesrv_addr=namesrv) as (other, second),
    ):
        await create_parent(second)
        await subscribe(client, "c1", "s1", "s2", "empty")
        for number in range(3):
            await send_lite(client, "s1", b"%d" % number)
        await ack(client, (await popped(client, "c1", max_msg_num=1))[0])
        await send_lite(client, "s2", b"a")
        await popped(client, "c1")  # the group has an offset in each lite topic now
        await await_route(namesrv, PARENT, 2)
        yield Site(namesrv, {"broker-a": one.address, "broker-b": other.address})


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with in_background(lite_site(tmp_path)) as running:
        yield running


def test_the_tables_of_one_broker_and_of_a_cluster(site: Site) -> None:
    one, other = site.addresses["broker-a"], site.addresses["broker-b"]
    lines = site.tool("getBrokerLiteInfo", "-b", one, "-d")
    assert lines[0] == (
        "#Broker                        #Store Type       #Max LMQ   #Current LMQ   #SubscriptionCount   "
        "#OrderInfoCount   #CQTableSize    #OffsetTableSize   #eventMapSize  "
    )
    start = f"{one:<30} default           20000      2              3                    "
    assert lines[1].startswith(start) and len(lines[1]) == len(lines[0])
    assert re.fullmatch(r"\d+ +\d+ +\d+ +\d+ +", lines[1].removeprefix(start))
    assert lines[2:] == ['Topic Meta: {"Sessions":60}', 'Group Meta: {"Sessions":["LiteGroup"]}', ""]
    assert [line.split()[0] for line in site.tool("getBrokerLiteInfo", "-c", "DefaultCluster")[1:]] == [one, other]
    assert "give exactly one of -b and -c" in site.tool("getBrokerLiteInfo", fails=True)[-1]


def test_a_parent_topic(site: Site) -> None:
    assert site.tool("getParentTopicInfo", *_ROUTE) == [
        "Parent Topic Info: [Sessions]",
        f"{'#Broker Name':<50} #TTL     #Lite Count    #LMQ NUM       {'#GROUPS':<100} ",
        f"{'broker-a':<50} 60       2              2              {'[LiteGroup]':<100} ",
        f"{'broker-b':<50} -1       0              0              {'[]':<100} ",
    ]
    assert "No topic route info" in site.tool("getParentTopicInfo", "-p", "Unknown", fails=True)[-1]


def test_a_lite_topic(site: Site) -> None:
    lines = site.tool("getLiteTopicInfo", *_ROUTE, "-l", "s1", "-s")
    assert lines[:2] == [
        "Lite Topic Info: [Sessions] [s1] [%LMQ%$Sessions$s1]",
        f"{'#Broker Name':<50} #MinOffset     #MaxOffset     {'#LastUpdate':<30} #Sharding    #SubClientCount    ",
    ]
    one = rf"broker-a {{42}} 0 {{14}}3 {{14}}{_TIME} {{7}} true {{9}}1 {{18}}"
    assert re.fullmatch(one, lines[2])
    assert lines[3:] == [
        "[c1@LiteGroup]",
        f"{'broker-b':<50} 0              0              {'-':<30} true         0                  ",
        "[]",
    ]
    assert len(site.tool("getLiteTopicInfo", *_ROUTE, "-l", "s1")) == 4


def test_a_client_and_the_broker_that_does_not_know_its_group(site: Site) -> None:
    lines = site.tool("getLiteClientInfo", *_OF_GROUP, "-c", "c1", "-s", fails=True)
    assert lines[:2] == [
        "Lite Client Info: [Sessions] [LiteGroup] [c1]",
        f"{'#Broker':<30} #LiteTopicCount      {'#LastAccessTime':<30} {'#LastConsumeTime':<30} ",
    ]
    assert re.fullmatch(rf"broker-a {{23}}3 {{20}}{_TIME} {{7}} N/A {{27}} ", lines[2])
    assert lines[3:6] == [
        "Lite Topics: [%LMQ%$Sessions$s1, %LMQ%$Sessions$s2, %LMQ%$Sessions$empty]", "", "[broker-b] error.",
    ]  # fmt: skip
    assert re.fullmatch(r"Error: broker-b: GET_LITE_CLIENT_INFO to .* Group \[LiteGroup\] not exist\.", lines[6])
    unknown = site.tool("getLiteClientInfo", *_OF_GROUP, "-c", "unknown", "-s", fails=True)
    assert unknown[2] == f"{'broker-a':<30} N/A                  {'N/A':<30} {'N/A':<30} "
    assert unknown[3] == "[broker-b] error."


def test_the_lag_of_a_group(site: Site) -> None:
    lines = site.tool("getLiteGroupInfo", *_OF_GROUP, fails=True)
    assert lines[:3] == ["Lite Group Info: [LiteGroup] [Sessions]", "[broker-b] error.", "Total Lag Count: 3"]
    assert re.fullmatch(r"Min Unconsumed Timestamp: \d{13} \(\d+ s ago\)", lines[3])
    head = f"NO     {'Lite Topic':<40} Lag Count    {'UnconsumedTimestamp':<30}"
    rows = [rf"1 {{6}}s1 {{39}}2 {{12}}{_TIME} {{7}}", rf"2 {{6}}s2 {{39}}1 {{12}}{_TIME} {{7}}"]
    for start, title in ((5, "------TopK by lag count-----"), (10, "------TopK by lag time------")):
        assert lines[start : start + 2] == [title, head]
        for row, line in zip(rows, lines[start + 2 : start + 4], strict=True):
            assert re.fullmatch(row, line), line
    assert (lines[4], lines[9]) == ("", "")
    top = site.tool("getLiteGroupInfo", *_OF_GROUP, "-k", "1", fails=True)
    assert [line.split()[1] for line in top if line.startswith(("1 ", "2 "))] == ["s1", "s1"]


def test_the_lag_of_a_group_in_one_lite_topic(site: Site) -> None:
    lines = site.tool("getLiteGroupInfo", *_OF_GROUP, "-l", "s1", fails=True)
    assert lines[1] == f"{'#Broker Name':<50} #BrokerOffset    #ConsumeOffset   #LagCount        {'#LastUpdate':<30}"
    assert re.fullmatch(rf"broker-a {{43}}3 {{16}}1 {{16}}2 {{16}}{_TIME} {{7}}", lines[2])
    assert lines[3:5] == ["[broker-b] error.", "Total Lag Count: 2"]
    assert not any("TopK" in line for line in lines)
    empty = site.tool("getLiteGroupInfo", *_OF_GROUP, "-l", "empty", fails=True)
    assert empty[2] == f"{'broker-a':<50} {'-':<16} {'-':<16} {'-':<16} {'-':<30}"
    assert empty[4] == "Total Lag Count: 0"


def test_no_lag_is_said_of_a_group_that_no_broker_knows(site: Site) -> None:
    lines = site.tool("getLiteGroupInfo", *_ROUTE, "-g", "Unknown", fails=True)
    assert lines[1:3] == ["[broker-a] error.", "[broker-b] error."]
    assert lines[3].startswith("Error: broker-a: ") and "; broker-b: " in lines[3]


def test_a_trigger_at_one_broker_or_all(site: Site) -> None:
    head, dispatched = ["Group And Topic Info: [LiteGroup] [Sessions]", ""], f"{'broker-a':<30} dispatched  "
    assert site.tool("triggerLiteDispatch", *_OF_GROUP, "-b", "broker-a", "-c", "c1") == [*head, dispatched]
    lines = site.tool("triggerLiteDispatch", *_OF_GROUP, fails=True)
    assert lines[:4] == [*head, dispatched, f"{'broker-b':<30} error       "]
    lines = site.tool("triggerLiteDispatch", *_OF_GROUP, "-b", "broker-c", fails=True)
    assert lines == ["Error: broker broker-c is not on the route of topic Sessions"]


def test_json_has_the_answers_by_broker(site: Site) -> None:
    [line] = site.tool("getParentTopicInfo", *_ROUTE, "--json")
    found = json.loads(line)
    assert found["broker-a"] == {
        "topic": "Sessions", "ttl": 60, "groups": ["LiteGroup"], "lmqNum": 2, "liteTopicCount": 2,
    }  # fmt: skip
    lag = json.loads(site.tool("getLiteGroupInfo", *_OF_GROUP, "--json", fails=True)[0])
    assert lag["broker-a"]["lagCountTopK"][0]["liteTopic"] == "s1" and "broker-b" not in lag
    assert json.loads(site.tool("getLiteTopicInfo", *_ROUTE, "-l", "s2", "--json")[0])["broker-a"]["shardingToBroker"]
    client = site.tool("getLiteClientInfo", *_OF_GROUP, "-c", "c1", "--json", fails=True)[0]
    assert json.loads(client)["broker-a"]["liteTopicCount"] == 3
    info = site.tool("getBrokerLiteInfo", "-b", site.addresses["broker-a"], "--json")[0]
    assert json.loads(info)[site.addresses["broker-a"]]["liteSubscriptionCount"] == 3


@asynccontextmanager
async def guarded_broker(root: Path) -> AsyncIterator[tuple[str, str]]:
    """Yields the addresses of a name server, and of a broker that asks for users."""
    async with (
        name_server() as namesrv,
        running_broker(root, store=LIGHT, namesrv_addr=namesrv, **GUARDED) as (broker, _),
    ):
        yield namesrv, broker.address


def test_a_refusal_names_the_account_that_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    file = home / "conf" / "tools.yml"
    file.write_text("accessKey: nobody\nsecretKey: wrong\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(home))
    with in_background(guarded_broker(tmp_path / "broker")) as (namesrv, address):
        tool: Admin = runner(namesrv)
        refused = tool("getBrokerLiteInfo", "-b", address, fails=True)
        assert refused[1] == f"[{address}] error."
        assert "The request was signed by nobody" in refused[2]
        file.write_text(f"accessKey: {ROOT.access_key}\nsecretKey: {ROOT.secret_key}\n")
        assert len(tool("getBrokerLiteInfo", "-b", address)) == 2

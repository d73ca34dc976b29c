"""Deployments in the cluster: versions, code, signatures, reports."""

import asyncio

import msgspec
import pytest

import sprocket
from sprocket.client.admin.admin_requests import AdminError
from sprocket.client.errors import ClientError
from sprocket.common.errors import ConfigError
from sprocket.functions.deployments import (
    CODE,
    STATUS,
    Deployment,
    Described,
    Registry,
    Status,
    Version,
    code_key,
    create_registry,
    create_topics,
    sign,
)
from sprocket.functions.package import digest
from sprocket.testing import Broker
from tests.waiting import until


def version(number: int, package: bytes = b"code", group: str = "g") -> Version:
    return Version(number, digest(package), "m", [Described("f", group, ["In"], None, f"{group}-changelog")], 0, "me")


def test_a_signature_is_that_of_one_name_number_module_and_code() -> None:
    key, one = b"0123456789abcdef", version(1)
    own = sign(key, "billing", one)
    others = [
        sign(b"fedcba9876543210", "billing", one),
        sign(key, "shipping", one),
        sign(key, "billing", msgspec.structs.replace(one, number=2)),
        sign(key, "billing", msgspec.structs.replace(one, module="os")),
        sign(key, "billing", version(1, b"other")),
    ]
    assert own not in others
    assert own == sign(key, "billing", msgspec.structs.replace(one, deployed_by="you", signature=own))


def test_the_newest_five_versions_are_kept_and_the_newest_is_current() -> None:
    made = Deployment("billing", 0, [], is_stopped=True)
    assert made.last_number == 0
    for number in range(1, 8):
        made = made.with_version(version(number))
    assert [one.number for one in made.versions] == [3, 4, 5, 6, 7]
    assert (made.current, made.before, made.last_number, made.is_stopped) == (7, 6, 7, False)
    rolled = msgspec.structs.replace(made, current=3)
    assert rolled.with_version(version(rolled.last_number + 1)).current == 8
    with pytest.raises(ConfigError, match="no version before 3"):
        _ = rolled.before
    with pytest.raises(ConfigError, match=r"no version 2; there are \[3, 4, 5, 6, 7\]"):
        made.version(2)


async def test_code_is_what_was_deployed_and_goes_with_its_version(functions_broker: Broker) -> None:
    async with sprocket.connect(functions_broker.namesrv) as mq:
        await create_registry(mq.admin)
        await create_registry(mq.admin)  # again
        registry = Registry(mq)
        await registry.table.start()
        made = Deployment("kept", 0, [])
        for number in range(1, 8):
            package = b"code %d" % number
            made = made.with_version(version(number, package))
            await registry.deploy(made, package)
            while registry.table.get("kept") != made:
                await asyncio.sleep(0.01)
        assert await registry.code(made, 7) == b"code 7"
        async with mq.table(CODE, bytes) as codes:
            assert sorted(codes) == [code_key("kept", number) for number in range(3, 8)]
            await codes.put(code_key("kept", 6), b"something else")
        with pytest.raises(ConfigError, match="not what was deployed"):
            await registry.code(made, 6)
        await registry.report(Status("kept", "here", 0, 7, "running", 1))
        await registry.report(Status("other", "here", 0, 7, "running", 1))
        assert [one.deployment for one in await registry.reports("kept")] == ["kept"]
        registry.check_groups("kept", version(1).functions)
        registry.check_groups("another", version(1, group="h").functions)
        with pytest.raises(ConfigError, match="kept has a function of group g"):
            registry.check_groups("another", version(1).functions)
        await registry.change("kept", instances=3)
        await until(lambda: registry.find("kept").instances == 3)
        await registry.delete("kept")
        await until(lambda: "kept" not in registry.table)
        with pytest.raises(ConfigError, match="no function is deployed as kept"):
            registry.find("kept")
        async with mq.table(CODE, bytes) as codes, mq.table(STATUS, Status) as statuses:
            assert (list(codes), list(statuses)) == ([], ["other/here/0"])


def reading(topic: str, group: str) -> Described:
    return Described("f", group, [topic], None, f"{group}-changelog")


async def test_topics_of_a_function_grow_with_its_inputs_and_others_are_not_touched(functions_broker: Broker) -> None:
    functions_broker.create_topic("Grown", 2)
    async with sprocket.connect(functions_broker.namesrv) as mq:
        admin, address = mq.admin, functions_broker.address
        for queues in (2, 2, 5):
            functions_broker.create_topic("Grown", queues)
            await until_queues(mq, "Grown", queues)
            await create_topics(admin, [reading("Grown", "grown")])
            made = await admin.topic_config(address, "grown-changelog")
            assert made is not None and made.read_queue_nums == queues
            assert made.attributes["cleanup.policy"] == "COMPACTION"
        assert await admin.topic_config(address, "%DLQ%grown") is not None
        functions_broker.create_topic("plain-changelog", 1)
        with pytest.raises(AdminError, match="not compacted"):
            await create_topics(admin, [reading("Grown", "plain")])
        with pytest.raises(ClientError, match="`sprocket topic create Absent`"):
            await create_topics(admin, [reading("Absent", "absent")])


async def until_queues(mq: sprocket.Connection, topic: str, queues: int) -> None:
    """Wait until name servers know the queues."""
    while (await mq.admin.topic_route(topic)).queue_datas[0].read_queue_nums != queues:
        pass

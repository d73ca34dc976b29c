"""`mqadmin setConsumeMode` against a running broker."""

from uuid import uuid4

import pytest

from sprocket.remoting.bodies.pop import SetMessageRequestModeRequestBody
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode
from tests.sprocket_cli.conftest import Cluster
from tests.sprocket_cli.programs import run


async def modes(cluster: Cluster, topic: str) -> dict[str, SetMessageRequestModeRequestBody]:
    client = RemotingClient()
    try:
        address = str(cluster.broker.facts["address"])
        response = await client.invoke(address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    finally:
        await client.close()
    table = loads(response.body, dict[str, dict[str, dict[str, SetMessageRequestModeRequestBody]]])
    return table["messageRequestModeMap"].get(topic, {})


async def test_the_mode_of_a_group_is_set_at_a_broker_or_a_whole_cluster(cluster: Cluster) -> None:
    topic, address = f"T{uuid4().hex}", str(cluster.broker.facts["address"])
    run(cluster.folder, "updateTopic", "-b", address, "-t", topic, "-n", cluster.namesrv, program="mqadmin")

    def set_mode(*flags: str) -> list[str]:
        command = ("setConsumeMode", "-t", topic, "-g", "tellers", "-n", cluster.namesrv, *flags)
        ended = run(cluster.folder, *command, program="mqadmin")
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.splitlines()

    assert set_mode("-b", address, "-m", "POP", "-q", "2") == [
        f"set consume mode to {address} success.",
        f"topic[{topic}] group[tellers] consume mode[POP] popShareQueueNum[2]",
    ]
    assert await modes(cluster, topic) == {"tellers": SetMessageRequestModeRequestBody(topic, "tellers", "POP", 2)}
    assert set_mode("-c", "DefaultCluster", "-m", "PULL")[-1].endswith("consume mode[PULL] popShareQueueNum[0]")
    assert await modes(cluster, topic) == {"tellers": SetMessageRequestModeRequestBody(topic, "tellers", "PULL", 0)}


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        (["-b", "127.0.0.1:1", "-m", "POP"], 1, "SET_MESSAGE_REQUEST_MODE"),
        (["-c", "Nowhere", "-m", "POP"], 1, "cluster Nowhere is not known"),
        (["-m", "POP"], 2, "give exactly one of -b and -c"),
        (["-c", "DefaultCluster", "-m", "PUSH"], 2, "'PUSH' is not one of 'PULL', 'POP'"),
        (["-c", "DefaultCluster", "-m", "POP"], 1, "not exist"),
    ],
)
def test_what_cannot_be_set_is_said(cluster: Cluster, flags: list[str], status: int, message: str) -> None:
    command = ("setConsumeMode", "-t", "NoSuchTopic", "-g", "tellers", "-n", cluster.namesrv, *flags)
    ended = run(cluster.folder, *command, program="mqadmin")
    assert ended.returncode == status
    assert message in ended.stderr

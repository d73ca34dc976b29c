"""Who may set and see schedules at a broker with access control."""

from pathlib import Path

from sprocket.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from sprocket.remoting.bodies.schedule import Schedule, ScheduleStatesBody
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.headers.auth import AclRequestHeader, UserRequestHeader
from sprocket.remoting.headers.base import Header
from sprocket.remoting.headers.schedule import (
    PauseScheduleRequestHeader,
    ScheduleRequestHeader,
    SetScheduleRequestHeader,
)
from tests.broker.auth.test_users import guarded
from tests.broker.rig import TestClient, create

OWN, OTHER = "shop|orders", "shop|billing"
PUBLISHER = Credentials(f"{OWN}%publisher", "secret of publisher")
OWNER = Credentials(f"{OWN}%owner", "secret of owner")


async def make(client: TestClient, user: Credentials, *actions: str) -> None:
    name = user.access_key
    entry = PolicyEntryInfo(f"Namespace:{OWN}", list(actions), None, "Allow")
    info = dumps(UserInfo(name, user.secret_key))
    await client.ask_well(RequestCode.AUTH_CREATE_USER, UserRequestHeader(username=name), info)
    acl = AclInfo(f"User:{name}", [PolicyInfo(None, [entry])])
    await client.ask_well(RequestCode.AUTH_CREATE_ACL, AclRequestHeader(subject=f"User:{name}"), dumps(acl))


def requests(topic: str) -> list[tuple[RequestCode, Header, bytes]]:
    """Each request about one schedule, in an order in which all succeed."""
    one = ScheduleRequestHeader(topic=topic, name="n")
    wanted = dumps(Schedule(name="n", topic=topic, body=b"go", every_millis=3_600_000))
    return [
        (RequestCode.SET_SCHEDULE, SetScheduleRequestHeader(topic=topic), wanted),
        (RequestCode.GET_SCHEDULE, one, b""),
        (RequestCode.PAUSE_SCHEDULE, PauseScheduleRequestHeader(topic=topic, name="n", paused=True), b""),
        (RequestCode.TRIGGER_SCHEDULE, one, b""),
        (RequestCode.DELETE_SCHEDULE, one, b""),
    ]


async def test_who_may_send_to_a_topic_may_have_schedules_for_it_and_for_no_other(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (broker, root):
        for namespace in (OWN, OTHER):
            await root.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create(f"{namespace}%T"))
        await make(root, PUBLISHER, "Pub")
        await make(root, OWNER, "All")
        publisher, owner = TestClient(broker.address), TestClient(broker.address)
        publisher.remoting, owner.remoting = RemotingClient(credentials=PUBLISHER), RemotingClient(credentials=OWNER)
        for code, header, body in requests(f"{OWN}%T"):
            await publisher.ask_well(code, header, body)
        for client in (publisher, owner):
            for code, header, body in requests(f"{OTHER}%T"):
                assert (await client.ask(code, header, body)).code == ResponseCode.NO_PERMISSION, code.name
        # The header says who may; a body for another topic does not pass with it.
        code, header, body = requests(f"{OWN}%T")[0][:2] + requests(f"{OTHER}%T")[0][2:]
        assert "is not that of the schedule" in ((await publisher.ask(code, header, body)).remark or "")
        for namespace in (OWN, OTHER):
            await root.ask_well(*requests(f"{namespace}%T")[0])
        assert (await publisher.ask(RequestCode.GET_SCHEDULES)).code == ResponseCode.NO_PERMISSION
        for client, count in ((owner, 1), (root, 2)):
            listed = loads(bytes((await client.ask_well(RequestCode.GET_SCHEDULES)).body), ScheduleStatesBody)
            topics = [one.schedule.topic for one in listed.schedules]
            assert len(topics) == count and f"{OWN}%T" in topics
        await publisher.close()
        await owner.close()

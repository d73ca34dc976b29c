"""A client id belongs to the account that used it first, in both modes; without access control, to whoever knows it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from proxy.clients.registry import Clients
from proxy.clients.telemetry_stream import TelemetryStream
from proxy.status import Refusal
from sprocket.grpc_wire import messaging_pb2 as wire
from sprocket.testing import Broker as BrokerProcess
from tests.proxy.rig import GrpcClient, Rig, consumer_settings
from tests.proxy.test_access import signed
from tests.proxy.test_quotas import SUPER, TOPIC, Guarded, guarded

_ID, _GROUP = "id-of-alice", "group-of-ids"


@pytest.fixture(params=["CLUSTER", "LOCAL"])
async def one(request: pytest.FixtureRequest, tmp_path: Path, shared_broker: BrokerProcess) -> AsyncIterator[Guarded]:
    async with guarded(tmp_path, shared_broker.namesrv, request.param) as made:
        yield made


def _heartbeat(group: str) -> wire.HeartbeatRequest:
    return wire.HeartbeatRequest(client_type=wire.PUSH_CONSUMER, group=wire.Resource(name=group))


def _termination(group: str) -> wire.NotifyClientTerminationRequest:
    return wire.NotifyClientTerminationRequest(group=wire.Resource(name=group))


async def test_id_of_a_client_is_refused_to_other_accounts_until_it_ends(one: Guarded) -> None:
    port = one.proxy.listeners[0].port
    alice, bob = (signed(GrpcClient(port, _ID), user, SUPER[user]) for user in ("alice", "bob"))
    settings = consumer_settings(TOPIC, _GROUP)
    kept, answer = await alice.report(settings)
    assert answer.status.code == wire.OK
    # Bob is a super user: no policy refuses him anything.
    other, refused = await bob.report(settings)
    assert refused.status.code == wire.UNAUTHORIZED and _ID in refused.status.message
    assert await other.read() is grpc.aio.EOF
    for name, request in (("Heartbeat", _heartbeat(_GROUP)), ("NotifyClientTermination", _termination(_GROUP))):
        status = (await bob.call(name, request)).status
        assert status.code == wire.UNAUTHORIZED and "another account" in status.message
    assert (await bob.receive(TOPIC, _GROUP, wait_s=0))[0].status.code == wire.UNAUTHORIZED
    assert (await bob.send(TOPIC, "as alice")).status.code == wire.UNAUTHORIZED
    # Alice's client noticed nothing.
    found = one.proxy.clients.get(_ID)
    assert found is not None and found.stream is not None
    assert (await alice.call("Heartbeat", _heartbeat(_GROUP))).status.code == wire.OK
    assert (await alice.call("NotifyClientTermination", _termination(_GROUP))).status.code == wire.OK
    _, answer = await bob.report(settings)
    assert answer.status.code == wire.OK
    kept.cancel()
    for client in (alice, bob):
        await client.close()


@pytest.mark.parametrize("mode", ["cluster", "local"])
async def test_id_is_of_whoever_knows_it_without_access_control(rig: Rig, topic: str) -> None:
    first, second = rig.client(_ID), rig.client(_ID)
    await first.report(consumer_settings(topic, _GROUP))
    assert (await second.call("Heartbeat", _heartbeat(_GROUP))).status.code == wire.OK
    assert (await second.call("NotifyClientTermination", _termination(_GROUP))).status.code == wire.OK


async def _nowhere(command: Any) -> None: ...


def test_accounts_that_come_at_the_same_time_do_not_share_an_id() -> None:
    """The gate has let both pass, because nobody had the id yet; or the other one came to another worker."""
    clients = Clients(lambda: 0.0, silent_s=1, lost_s=1)
    settings = consumer_settings("topic", _GROUP)
    stream = TelemetryStream(_ID, _nowhere, lambda: None, 1.0)
    clients.report(_ID, settings, stream, "alice")
    with pytest.raises(Refusal, match="another account"):
        clients.report(_ID, settings, TelemetryStream(_ID, _nowhere, lambda: None, 1.0), "bob")
    with pytest.raises(Refusal, match="another account"):
        clients.seen(_ID, "bob")
    clients.report_elsewhere(_ID, consumer_settings("other", _GROUP), "bob")
    found = clients.owned(_ID, "alice")
    assert found is not None and found.stream is stream and found.reported == settings

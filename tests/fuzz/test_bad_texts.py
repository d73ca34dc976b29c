"""Bad texts in every text field of every code, at each kind of server: no other request on the connection suffers."""

from pathlib import Path

import pytest

from sprocket.remoting.codes import RequestCode
from sprocket.remoting.credentials import Credentials
from tests.bad_texts import bad_between_good, bad_requests
from tests.broker.rig import create, running_broker
from tests.controller.site import group_of
from tests.controller.site import site_at as controller_at
from tests.namesrv.site import site_at

USUAL = {
    "topic": "Orders", "b": "Orders", "consumerGroup": "CG", "producerGroup": "PG", "group": "CG", "k": "false",
}  # fmt: skip
SEND = dict.fromkeys("defgh", b"0") | {"a": b"PG", "b": b"Orders", "c": b"TBW102", "d": b"4", "i": b"a"}


@pytest.mark.timeout(240)
async def test_broker(tmp_path: Path) -> None:
    async with running_broker(tmp_path, enable_property_filter=True) as (broker, client):
        await client.ask_well(RequestCode.UPDATE_AND_CREATE_TOPIC, create())
        requests = bad_requests(broker.routes.routes, USUAL)
        assert await bad_between_good(broker.port, requests, RequestCode.SEND_MESSAGE_V2, SEND) > 2000


@pytest.mark.timeout(240)
async def test_guarded_broker(tmp_path: Path) -> None:
    """Requests in bad texts come before any signature is checked."""
    guard = {"authentication_enabled": True, "init_authentication_user": '{"username":"u","password":"secret of u"}'}
    fields = Credentials("u", "secret of u").signed({name: value.decode() for name, value in SEND.items()}, b"body")
    async with running_broker(tmp_path, **guard) as (broker, _):
        good = {name: value.encode() for name, value in fields.items()}
        requests = bad_requests(broker.routes.routes, USUAL | {"AccessKey": "u", "Signature": "x"})
        assert await bad_between_good(broker.port, requests, RequestCode.SEND_MESSAGE_V2, good) > 2000


async def test_name_server(tmp_path: Path) -> None:
    async with site_at(tmp_path) as site:
        await site.register()
        requests = bad_requests(site.server.routes.routes, USUAL)
        assert await bad_between_good(site.server.port, requests, RequestCode.GET_BROKER_CLUSTER_INFO, {}) > 200


async def test_controller(tmp_path: Path) -> None:
    async with controller_at(tmp_path) as site, group_of(site, 2):
        requests = bad_requests(site.server.routes.routes, USUAL)
        assert await bad_between_good(site.server.port, requests, RequestCode.CONTROLLER_GET_METADATA_INFO, {}) > 100
        assert not site.failures

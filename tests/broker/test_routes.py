"""Every request code of RocketMQ is either routed, with its access rule, or refused by name.

That each is served somewhere or excused is in tests/docs/pages/test_compatibility_page.py.
"""

from pathlib import Path

import pytest

from broker.server import Broker
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.routes import Action, Resource, Traffic
from tests.broker.rig import broker_config, running_broker, store_config


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(broker_config(), store_config(tmp_path))


async def test_codes_without_a_route_are_refused_by_name(tmp_path: Path) -> None:
    """Why they have none says `docs.pages.unsupported_codes`, unless a name server or client serves them."""
    async with running_broker(tmp_path) as (broker, client):
        for code in sorted(set(RequestCode) - {route.code for route in broker.routes.routes}):
            response = await client.ask(code)
            assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert f"{int(code)} ({code.name}) not supported" in (response.remark or "")


def test_every_route_states_its_access_rule(broker: Broker) -> None:
    for route in broker.routes.routes:
        assert route.resource is not Resource.NONE, route.code.name
        assert route.action is not Action.NONE, route.code.name


def test_what_changes_something_needs_more_than_the_right_to_look(broker: Broker) -> None:
    looking = {Action.GET, Action.LIST}
    for route in broker.routes.routes:
        if route.code is RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS:
            continue  # asks clients where they are
        if route.code.name.startswith(("UPDATE_", "DELETE_", "INVOKE_", "CLEAN_", "SEND_", "LOCK_", "UNLOCK_")):
            assert route.action not in looking, route.code.name


def test_clients_and_operators_have_lanes_of_their_own(broker: Broker) -> None:
    classes = {route.code: route.traffic for route in broker.routes.routes}
    assert classes[RequestCode.HEART_BEAT] is Traffic.CLIENT
    assert classes[RequestCode.CONSUMER_SEND_MSG_BACK] is Traffic.SEND
    assert classes[RequestCode.GET_BROKER_RUNTIME_INFO] is Traffic.ADMIN

"""A client whose tokens live for two seconds, at a broker with access control: nothing is lost, nothing is refused."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import sprocket
import sprocket.sync
from acl.auth.model import User, UserType
from broker.server import Broker
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket import Message
from sprocket.client.errors import ClientError
from sprocket.remoting.bodies.topic import TopicConfig
from tests.acl.tokens.makers import key, key_files, token
from tests.broker.rig import broker_config, store_config

_LIFE_S = 2.0
_ROUNDS = 6


async def test_messages_go_on_over_the_ends_of_tokens(tmp_path: Path) -> None:
    names = NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1"))
    await names.start()
    namesrv = f"127.0.0.1:{names.port}"
    settings: dict[str, Any] = {"authentication_enabled": True, "authorization_enabled": True}
    settings |= {"token_super_user_enabled": True, "token_allowed_clock_skew_seconds": 0, "namesrv_addr": namesrv}
    broker = Broker(broker_config(**settings, **key_files(tmp_path / "keys", key("ES256"))), store_config(tmp_path))
    await broker.start()
    broker.users.tables.create_user(User("app", "unknown-password", UserType.SUPER))
    assert broker.topics.update([TopicConfig("Renewed", 1, 1)])
    fetched: list[str] = []

    async def fetch() -> str:
        fetched.append(token(key("ES256"), time.time(), "app", life_s=_LIFE_S, token_id=str(len(fetched))))
        return fetched[-1]

    received: list[bytes] = []
    try:
        client = sprocket.ClientSettings(namesrv=namesrv, heartbeat_broker_interval_s=5.0)
        async with sprocket.connect(client=client, credentials=fetch) as mq:
            consumer = mq.simple_consumer("readers", "Renewed")
            await consumer.receive(1, wait_s=0.1)
            for number in range(_ROUNDS):
                await mq.producer().send(Message("Renewed", b"%d" % number))
                for message in await consumer.receive(16, wait_s=1.0):
                    received.append(message.body)
                    await message.ack()
                await asyncio.sleep(0.5)
    finally:
        await broker.stop()
        await names.stop()
    assert received == [b"%d" % number for number in range(_ROUNDS)]
    assert len(fetched) >= 3


async def _away() -> str:
    raise OSError("the issuer is away")


def test_the_blocking_client_takes_a_function_too() -> None:
    connection = sprocket.sync.connect("127.0.0.1:1", credentials=_away)
    with connection as mq, pytest.raises(ClientError, match="the issuer is away"):
        mq.producer().send(Message("T", b"x"))


async def test_a_function_that_fails_is_the_reason_of_the_error() -> None:
    async with sprocket.connect("127.0.0.1:1", credentials=_away) as mq:
        with pytest.raises(ClientError, match="the issuer is away"):
            await mq.producer().send(Message("T", b"x"))

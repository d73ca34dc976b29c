"""A client that does not pop, does not acknowledge or does not read keeps no message from the others."""

import asyncio
import socket
from pathlib import Path

import pytest

from sprocket.remoting.codes import RequestCode
from tests.broker.lite.rig import GROUP, ack, lite_broker, pop_header, popped, send_lite, subscribe
from tests.broker.rig import TestClient
from tests.compat import wire

_DEAF_POPS = 2000


def _deaf(address: str) -> socket.socket:
    """A connection that asks very often and never reads an answer."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setblocking(False)
    header = pop_header("deaf", poll_time=0, max_msg_num=1)
    fields = {
        "clientId": header.client_id, "consumerGroup": GROUP, "topic": header.topic, "maxMsgNum": "1",
        "invisibleTime": "1", "pollTime": "0", "bornTime": "0",
    }  # fmt: skip
    frames = b"".join(wire.request(RequestCode.POP_LITE_MESSAGE, number, fields) for number in range(1, _DEAF_POPS))
    while frames:
        try:
            frames = frames[connection.send(frames) :]
        except BlockingIOError:
            break  # the broker reads no more of it
    return connection


async def _serves_all(client: TestClient, address: str, count: int) -> None:
    for number in range(count):
        await subscribe(client, f"good-{number}", f"own-{number}", "shared")
    await subscribe(client, "silent", *(f"own-{number}" for number in range(count)), "shared")
    await subscribe(client, "hoarder", "hoard")
    await subscribe(client, "deaf", "noise")
    await send_lite(client, "hoard", b"1")
    await send_lite(client, "noise", b"n" * 10_000)
    deaf = await asyncio.to_thread(_deaf, address)
    try:
        (hoarded,) = await popped(client, "hoarder")
        for round_number in range(2):
            for number in range(count):
                await send_lite(client, f"own-{number}", b"%d" % round_number)
            for number in range(count):
                (message,) = await popped(client, f"good-{number}")
                assert (message.lite, message.body) == (f"own-{number}", b"%d" % round_number)
                assert (await ack(client, message)).code == 0
        await send_lite(client, "shared", b"for anyone who pops")
        got = [message for number in range(count) for message in await popped(client, f"good-{number}")]
        assert [message.body for message in got] == [b"for anyone who pops"]
        # Its own lite topic goes on when it acknowledges.
        await send_lite(client, "hoard", b"2")
        assert await popped(client, "hoarder") == []
        assert (await ack(client, hoarded)).code == 0
        assert [message.body for message in await popped(client, "hoarder")] == [b"2"]
    finally:
        deaf.close()


async def test_clients_are_served_beside_clients_that_do_not_pop_acknowledge_or_read(tmp_path: Path) -> None:
    async with lite_broker(tmp_path) as (_, client):
        await _serves_all(client, client.address, 20)


@pytest.mark.slow
async def test_a_thousand_clients_are_served_beside_such_clients(tmp_path: Path) -> None:
    async with lite_broker(tmp_path, store={"max_lmq_consume_queue_num": 100_000}) as (_, client):
        await _serves_all(client, client.address, 1000)

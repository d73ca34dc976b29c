"""A client that cannot write reads on: else two full buffers would hold each other for ever."""

import asyncio

from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codes import RequestCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.headers.client import HeartbeatRequestHeader
from tests.client.fake_cluster import FakeServer, route

MIB = 1024 * 1024


def echo(request: Request[HeartbeatRequestHeader]) -> Response:
    return Response(body=request.body)


async def test_requests_and_responses_larger_than_all_buffers() -> None:
    async with FakeServer([route(RequestCode.HEART_BEAT, HeartbeatRequestHeader, echo)]) as server:
        client = RemotingClient()
        channel = await client.channel(server.address)
        body = bytes(MIB)
        answers = [
            channel.request(RequestCode.HEART_BEAT, HeartbeatRequestHeader(), body, timeout_s=20) for _ in range(48)
        ]
        assert channel.stalled_at is None  # the writes of this turn have not left yet
        await asyncio.sleep(0)
        assert channel.stalled_at is not None
        await channel.drained()
        assert channel.stalled_at is None
        assert {len(answer.body) for answer in await asyncio.gather(*answers)} == {MIB}
        await client.close()

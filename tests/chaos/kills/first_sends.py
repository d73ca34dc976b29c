"""Sends that create their topics, and what of them a broker shows afterwards."""

import asyncio
from typing import Final

from sprocket.remoting.bodies.topic import TopicConfigTable
from sprocket.remoting.client import RemotingClient
from sprocket.remoting.codec.fastjson import loads
from sprocket.remoting.codes import RequestCode, ResponseCode
from tests.chaos.load import Refused, read_queue, send_message, until_dead

_TIMEOUT_S: Final = 60.0


class FirstSends:
    """Topics that were created by a send that was acknowledged, over all lives of the broker.

    `lanes` send side by side, each one message after the other; every other message is the second of its topic.
    """

    def __init__(self, lanes: int = 3, pause_s: float = 0.0) -> None:
        self.acknowledged: dict[str, int] = {}  # topic -> acknowledged messages
        self._lanes = lanes
        self._pause_s = pause_s
        self._made = 0

    async def until_dead(self, address: str) -> None:
        """Create topics until the connection is lost.  Raises Refused."""
        await until_dead(address, self._lanes, self._lane)

    async def _lane(self, client: RemotingClient, address: str) -> None:
        while True:
            self._made += 1
            topic = f"First{self._made}"
            # The second one meets a topic that exists in memory, and perhaps not on the disk.
            await asyncio.gather(self._send(client, address, topic), self._send(client, address, topic))
            await asyncio.sleep(self._pause_s)

    async def _send(self, client: RemotingClient, address: str, topic: str) -> None:
        try:
            await send_message(client, address, topic, 0, "", topic.encode())
        except Refused as refused:
            # A disk that is busy for seconds: the message is stored, and nobody knows whether it is on the disk.
            if refused.code != ResponseCode.FLUSH_DISK_TIMEOUT:
                raise
            return
        self.acknowledged[topic] = self.acknowledged.get(topic, 0) + 1

    async def problems(self, address: str) -> list[str]:
        """Return the acknowledged topics that the broker does not show with all their acknowledged messages."""
        client = RemotingClient()
        try:
            response = await client.invoke(address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_s=_TIMEOUT_S)
            known = loads(bytes(response.body), TopicConfigTable).topic_config_table
            found = [f"topic {topic} is gone" for topic in self.acknowledged if topic not in known]
            for topic, count in self.acknowledged.items():
                if topic in known:
                    keys = [key for _, key in await read_queue(client, address, topic, 0, 0)]
                    if keys.count(topic) < count:
                        found.append(f"{count} messages of {topic} were acknowledged, {keys} are shown")
            return found
        finally:
            await client.close()

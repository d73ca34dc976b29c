"""Topics that functions need, as an operator creates them."""

from collections.abc import Iterable
from typing import Protocol

from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.errors import ClientError
from sprocket.remoting.bodies.route import MASTER_ID
from sprocket.remoting.bodies.topic import TopicConfig
from sprocket.remoting.message.topic_names import dlq_topic


class Reading(Protocol):
    """A function, or its description."""

    @property
    def group(self) -> str: ...

    @property
    def changelog(self) -> str: ...

    @property
    def inputs(self) -> Iterable[str]: ...


async def create_topics(admin: AdminClient, functions: Iterable[Reading]) -> None:
    """Create changelog and dead-letter topic of each function, or let them grow, on the brokers of its inputs.

    The changelog has a queue for each input queue there.  Raises AdminError for an input topic that is not there, and
    ClientError for a static one.
    """
    for function in functions:
        queues: dict[str, int] = {}
        masters: dict[str, str] = {}
        for topic in function.inputs:
            route = await admin.topic_route(topic)
            if route.topic_queue_mapping_by_broker:
                raise ClientError(f"{topic} is a static topic: its queues move, so functions cannot read it")
            for data in route.queue_datas:
                queues[data.broker_name] = max(queues.get(data.broker_name, 0), data.read_queue_nums)
            for broker in route.broker_datas:
                if MASTER_ID in broker.broker_addrs:
                    masters[broker.broker_name] = broker.broker_addrs[MASTER_ID]
        for broker_name, count in queues.items():
            if broker_name not in masters:
                raise ClientError(f"broker {broker_name} has no master now; try again when it has")
            await admin.create_compacted_topic(masters[broker_name], function.changelog, count)
            dead_letters = dlq_topic(function.group)
            if await admin.topic_config(masters[broker_name], dead_letters) is None:
                await admin.create_topic(masters[broker_name], TopicConfig(dead_letters, 1, 1))

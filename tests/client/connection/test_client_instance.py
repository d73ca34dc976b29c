"""A client's view of the cluster: what it believes of a route, and which broker an address or a connection means."""

import pytest

from sprocket import ClientError, ClientSettings, Message, Producer
from sprocket.client.connection.client_instance import ClientInstance
from tests.client.fake_cluster import FakeBroker, FakeNameServer, topic_data


async def test_broker_that_is_registered_by_a_host_name_is_found_by_its_number_and_by_its_connection() -> None:
    async with FakeNameServer() as names, FakeBroker("a") as broker, FakeBroker("b") as other:
        named = broker.address.replace("127.0.0.1", "localhost")
        names.topics["T"] = topic_data(("a", named), other)
        instance = ClientInstance(ClientSettings(namesrv=names.address))
        await instance.open()
        await instance.refresh_route("T")
        assert await instance.broker_at(broker.address) == "a"
        assert await instance.broker_at(other.address) == "b"
        assert await instance.broker_at("127.0.0.1:1") is None
        assert instance.broker_of(await instance.remoting.channel(named)) == "a"
        assert instance.broker_of(await instance.remoting.channel(other.address)) == "b"
        assert instance.broker_of(await instance.remoting.channel(names.address)) is None
        await instance.close()


@pytest.mark.parametrize(
    ("queues", "order", "told"),
    [
        (2**31 - 1, None, "a has 2147483647 read and 2147483647 write queues, the limit is 65535"),
        (4, "a:2147483647", "its order names more than 262140 queues"),
        (4, "a:200000;a:200000", "its order names more than 262140 queues"),
    ],
)
async def test_route_of_a_stranger_takes_no_memory_and_no_queue_from_a_running_client(
    queues: int, order: str | None, told: str
) -> None:
    async with FakeNameServer() as names, FakeBroker("a") as broker, Producer("g", names.address) as producer:
        names.topics["T"] = topic_data(broker)
        await producer.send(Message("T", b"x"))
        names.topics["T"] = names.topics["U"] = topic_data(broker, queues=queues)
        names.topics["U"].order_topic_conf = order
        with pytest.raises(ClientError, match=told):
            await producer.queues("U")
        await producer.send(Message("T", b"x"))
        assert len(broker.taken) == 2

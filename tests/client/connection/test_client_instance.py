"""Which broker group is meant by an address, or by a connection, if brokers are registered by host names."""

from sprocket import ClientSettings
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

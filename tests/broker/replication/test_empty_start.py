"""An empty master compares the slaves that connected with the members that name servers know."""

import pytest

from broker.replication.empty_start import EmptyStart
from sprocket.remoting.addresses import numeric_hosts

MEMBERS = {0: "localhost:10911", 1: "localhost:10921"}


@pytest.mark.parametrize("host", ["127.0.0.1", "::ffff:127.0.0.1"])
async def test_slave_that_is_registered_by_a_host_name_is_known_by_its_connection(host: str) -> None:
    begun: list[str] = []
    start = EmptyStart(0, 60_000, begun.append)
    start.slave_is_empty(host)  # over the plain protocol, which tells no id
    start.members_known(MEMBERS, 0, {number: await numeric_hosts(address) for number, address in MEMBERS.items()})
    assert begun == ["the store is empty, and so is every slave's"]


async def test_member_whose_host_is_not_found_has_not_connected() -> None:
    begun: list[str] = []
    start = EmptyStart(0, 60_000, begun.append)
    start.slave_is_empty("127.0.0.1")
    start.members_known({1: "no.such.host.invalid:1"}, 0, {1: await numeric_hosts("no.such.host.invalid:1")})
    assert begun == []

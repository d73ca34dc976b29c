"""One place has many addresses: what counts is where they lead."""

import pytest

from sprocket.remoting.addresses import names_at, numeric_host, numeric_hosts


@pytest.mark.parametrize(
    ("host", "number"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80::1"),
        ("localhost", None),
        ("", None),
    ],
)
def test_form_of_a_host(host: str, number: str | None) -> None:
    assert numeric_host(host) == number


@pytest.mark.parametrize("address", ["no.such.host.invalid:9876", "9876", "grpc://a:1", "a" * 70 + ".example:9876"])
async def test_address_that_leads_nowhere_equals_no_other(address: str) -> None:
    assert await numeric_hosts(address) == frozenset()
    assert await names_at("127.0.0.1:9876", {"a": [address]}) == set()


async def test_group_is_found_by_every_form_of_its_address() -> None:
    groups = {"a": ["localhost:10911"], "b": ["localhost:10921", "[::1]:10931"], "c": ["10.0.0.7:10911"]}
    assert await names_at("127.0.0.1:10911", groups) == {"a"}
    assert await names_at("127.0.0.1:10921", groups) == {"b"}
    assert await names_at("0000:0000:0000:0000:0000:0000:0000:0001:10931", groups) == {"b"}
    assert await names_at("localhost:10911", groups) == {"a"}
    assert await names_at("[::ffff:10.0.0.7]:10911", groups) == {"c"}
    assert await names_at("10.0.0.7:10912", groups) == set()

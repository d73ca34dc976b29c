"""White lists: meaning of each form, and refused ones.  Cases of RocketMQ 5.3.2's `RemoteAddressStrategyTest`."""

import contextlib
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acl.remote_addresses import RemoteAddresses, parts_of
from sprocket.common.errors import ConfigError

ADDRESSES = [
    "127.0.0.1", "127.0.0.2", "127.0.0.4", "127.0.1.5", "127.0.200.5", "127.0.201.5", "127.150.0.1", "127.151.0.1",
    "192.168.0.1", "10.1.255.255", "10.2.0.0", "::1", "1050::5:600:300c:1", "1050::5:600:300c:200",
    "1050::5:600:300c:201", "1050::5:600:3001:1", "1050::5:600:300c:1:ffff", "1050::5:600:300c:201:ffff",
]  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "members"),
    [
        ("", []),
        ("*", ADDRESSES),
        ("*.*.*.*", ADDRESSES),
        ("*:*:*:*:*:*:*:*", ADDRESSES),
        ("127.0.0.1", ["127.0.0.1"]),
        ("::1", ["::1"]),
        ("0000:0000:0000:0000:0000:0000:0000:0001", ["::1"]),
        ("127.0.0.1,127.0.0.2, 192.168.0.1", ["127.0.0.1", "127.0.0.2", "192.168.0.1"]),
        ("127.0.0.{1,2}", ["127.0.0.1", "127.0.0.2"]),
        ("1050::0005:0600:300c:{1,2,3}", ["1050::5:600:300c:1"]),
        ("127.0.0.1-2", ["127.0.0.1", "127.0.0.2"]),
        ("127.0.0.*", ["127.0.0.1", "127.0.0.2", "127.0.0.4"]),
        ("127.0.1-200.*", ["127.0.1.5", "127.0.200.5"]),
        ("127.1-150.*.*", ["127.150.0.1"]),
        ("10.1.0.0/16", ["10.1.255.255"]),
        ("1050::/16", [address for address in ADDRESSES if address.startswith("1050")]),
        ("1050::0005:0600:300c:1-200", ["1050::5:600:300c:1", "1050::5:600:300c:200"]),
        ("1050::0005:0600:300c:*", ["1050::5:600:300c:1", "1050::5:600:300c:200", "1050::5:600:300c:201"]),
        ("1050::0005:0600:300c:1-200:*", ["1050::5:600:300c:1:ffff"]),
    ],
)
def test_which_addresses_a_list_has(entry: str, members: list[str]) -> None:
    listed = RemoteAddresses([entry])
    assert [address for address in ADDRESSES if listed.match(parts_of(address))] == members


@pytest.mark.parametrize(
    "entry",
    [
        "256.0.0.1", "::1ggg", "127.0.0.1,2,3}", "::1,2,3}", "192.168.{1}", "{192.168.1}", "{192.168.1.1}",
        "127.0.0.200-1", "127.0.0.-1", "127.0.0.1-256", "1.2.*", "1.2.3.4.*", "10.0.0.0/33", "localhost", "1050:0005:*",
        "a.b.c.*", "1:2:3:4:5:6:7:8:*",
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused_by_name(entry: str) -> None:
    with pytest.raises(ConfigError, match="white list"):
        RemoteAddresses([entry])


def test_an_address_of_ipv4_that_comes_as_ipv6_is_that_address() -> None:
    assert RemoteAddresses(["10.1.2.*"]).match(parts_of("::ffff:10.1.2.3"))


def test_no_address_is_on_no_list_but_that_of_everybody() -> None:
    assert not RemoteAddresses(["127.0.0.1", "*.*.*.1", "0.0.0.0/0"]).match(parts_of("nowhere"))
    assert RemoteAddresses(["*"]).match(None)


@given(st.ip_addresses(v=4), st.integers(0, 32))
def test_a_subnet_is_the_one_that_the_standard_library_means(address: ipaddress.IPv4Address, bits: int) -> None:
    network = ipaddress.ip_network(f"10.20.30.40/{bits}", strict=False)
    assert RemoteAddresses([f"10.20.30.40/{bits}"]).match(parts_of(str(address))) == (address in network)


@given(st.text(max_size=40))
def test_any_text_is_an_address_list_or_a_named_refusal(text: str) -> None:
    with contextlib.suppress(ConfigError):
        RemoteAddresses([text]).match((1, 2, 3, 4))

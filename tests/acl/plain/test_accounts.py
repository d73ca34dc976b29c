"""plain_acl.yml: the file that comes with RocketMQ, and those that are refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acl.plain.accounts import parse
from acl.plain.permission import Permission
from acl.remote_addresses import parts_of
from sprocket.common.errors import ConfigError

STOCK = b"""
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 01234567
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC=SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
dataVersion:
  - counter: 3
    timestamp: 1600000000000
"""


def test_the_file_that_comes_with_rocketmq() -> None:
    file = parse("plain_acl.yml", STOCK)
    first, second = file.accounts
    assert (first.access_key, first.secret_key, first.is_admin) == ("RocketMQ", "01234567", False)
    assert (first.default_topic, first.default_group) == (Permission.DENY, Permission.SUB)
    assert first.permissions["topicB"] == Permission.PUB | Permission.SUB
    assert first.permissions["%RETRY%groupA"] == Permission.DENY
    assert not first.white.match(parts_of("192.168.1.7"))
    assert second.is_admin and second.white.match(parts_of("192.168.1.7"))
    assert (second.default_topic, second.default_group) == (Permission.DENY, Permission.DENY)
    assert file.white.match(parts_of("10.10.103.9")) and not file.white.match(parts_of("10.10.104.9"))
    assert "01234567" not in repr(first)


@pytest.mark.parametrize("content", [b"", b"# nothing\n", b"accounts:\n", b"globalWhiteRemoteAddresses:\n"])
def test_a_file_of_nothing_has_no_accounts(content: bytes) -> None:
    assert parse("empty.yml", content).accounts == ()


ACCOUNT = b"accounts:\n  - {accessKey: Somebody, secretKey: 12345678, %s}\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"accounts: [", "no YAML"),
        (b"accounts:\n  - {accessKey: short, secretKey: 12345678}", "accessKey 'short': it must be longer than 6"),
        (b"accounts:\n  - {accessKey: LongEnough, secretKey: short}", "LongEnough: its secretKey"),
        (b"accounts:\n  - {accessKey: LongEnough}", "LongEnough: its secretKey"),
        (b"accounts:\n  - text", "Expected `object`"),
        (b"accounts: 5", "Expected `array"),
        (b"accountz: []", "accountz"),
        (ACCOUNT % b"topicPerms: [topicA]", "Somebody: permission 'topicA': write resource=permission"),
        (ACCOUNT % b"topicPerms: [topicA=READ]", "allowed are DENY, PUB, SUB"),
        (ACCOUNT % b"groupPerms: [a=b=SUB]", "write resource=permission"),
        (ACCOUNT % b"whiteRemoteAddress: 300.1.1.1", "Somebody: white list: '300.1.1.1'"),
        (ACCOUNT % b"colour: red", "colour"),
        (b"globalWhiteRemoteAddresses: [nowhere]", "white list: 'nowhere'"),
        (b"a: &x [1]\nb: *x", "aliases"),
        (b"\xff\xfe\x00", "no YAML"),
        (b"- " * 5000, "no YAML"),
    ],
)
def test_what_is_wrong_is_said_with_the_files_name(content: bytes, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse("/conf/plain_acl.yml", content)
    assert str(refused.value).startswith("/conf/plain_acl.yml: ")
    assert reason in str(refused.value)
    assert "12345678" not in str(refused.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_accounts_or_a_named_refusal(content: bytes) -> None:
    with contextlib.suppress(ConfigError):
        parse("any.yml", content)

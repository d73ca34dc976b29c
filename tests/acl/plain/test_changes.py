"""Changes of the account files: what is written can be read again, and nothing else is written."""

import dataclasses

import pytest
import yaml

from acl.plain.accounts import Account, parse
from acl.plain.changes import (
    AccountChange,
    FileVersion,
    version_of,
    with_account,
    with_white_addresses,
    without_account,
)
from acl.plain.permission import Permission
from acl.remote_addresses import RemoteAddresses, parts_of
from sprocket.common.errors import ConfigError

FILE = b"""
# the operator's
globalWhiteRemoteAddresses: [10.1.1.1]
accounts:
  - {accessKey: FirstOne, secretKey: '00000001', admin: yes, topicPerms: [A=PUB, B=SUB]}
  - {accessKey: SecondOne, secretKey: '00000002', whiteRemoteAddress: 10.2.2.*, defaultTopicPerm: SUB}
dataVersion:
  - {timestamp: 1700000000000, counter: 4}
"""
NOWHERE = RemoteAddresses([])
NEW = AccountChange("ThirdOne", "00000003", False, "10.3.*.*", "DENY", "SUB", ["C=PUB|SUB"], ["G=DENY"])


def comparable(account: Account) -> Account:
    return dataclasses.replace(account, white=NOWHERE)


def test_an_account_is_added_and_the_others_stay() -> None:
    before, after = parse("f", FILE), parse("f", with_account("f", FILE, NEW, 1))
    assert [comparable(each) for each in after.accounts[:2]] == [comparable(each) for each in before.accounts]
    assert after.accounts[1].white.match(parts_of("10.2.2.9"))
    added = after.accounts[2]
    assert (added.access_key, added.secret_key, added.is_admin) == ("ThirdOne", "00000003", False)
    assert added.permissions == {"C": Permission.PUB | Permission.SUB, "%RETRY%G": Permission.DENY}
    assert added.white.match(parts_of("10.3.1.2")) and not added.white.match(parts_of("10.4.1.2"))


def test_what_a_change_does_not_name_stays() -> None:
    content = with_account("f", FILE, AccountChange("SecondOne", "another-secret"), 1)
    first, second = parse("f", content).accounts
    assert comparable(first) == comparable(parse("f", FILE).accounts[0])
    assert comparable(second) == comparable(
        dataclasses.replace(parse("f", FILE).accounts[1], secret_key="another-secret")
    )
    assert second.white.match(parts_of("10.2.2.9"))


def test_an_admin_is_one_only_as_long_as_the_change_says_so() -> None:
    (first, _) = parse("f", with_account("f", FILE, AccountChange("FirstOne", "00000001"), 1)).accounts
    assert not first.is_admin


def test_an_account_is_taken_out() -> None:
    content = without_account("f", FILE, "FirstOne", 1)
    assert content is not None
    assert [account.access_key for account in parse("f", content).accounts] == ["SecondOne"]
    assert without_account("f", FILE, "Nobody", 1) is None


def test_the_white_list_is_replaced() -> None:
    after = parse("f", with_white_addresses("f", FILE, ["10.9.*.*", "10.8.8.8"], 1))
    assert after.white.match(parts_of("10.9.1.1")) and after.white.match(parts_of("10.8.8.8"))
    assert not after.white.match(parts_of("10.1.1.1"))
    assert not parse("f", with_white_addresses("f", FILE, [], 1)).white.match(parts_of("10.1.1.1"))


def test_each_change_counts_on() -> None:
    assert version_of("f", FILE) == FileVersion(1_700_000_000_000, 4)
    once = with_account("f", FILE, NEW, 1_800_000_000_000)
    assert version_of("f", once) == FileVersion(1_800_000_000_000, 5)
    assert version_of("f", with_account("f", b"", NEW, 7)) == FileVersion(7, 1)


def test_the_reference_can_read_the_types() -> None:
    """Its beans take a boolean and numbers, and a key of digits as text."""
    written = yaml.safe_load(with_account("f", FILE, NEW, 1))
    assert [account["admin"] for account in written["accounts"]] == [True, False, False]
    assert written["accounts"][2]["secretKey"] == "00000003"
    assert written["dataVersion"] == [{"timestamp": 1, "counter": 5}]


@pytest.mark.parametrize(
    "change",
    [
        AccountChange("Short", "00000003"),
        AccountChange("ThirdOne", "short"),
        dataclasses.replace(NEW, topic_perms=["no permission"]),
        dataclasses.replace(NEW, group_perms=["G=ALL"]),
        dataclasses.replace(NEW, white_remote_address="10.1.1.300"),
    ],
)
def test_what_could_not_be_read_again_is_refused(change: AccountChange) -> None:
    with pytest.raises(ConfigError):
        with_account("f", FILE, change, 1)


def test_a_line_end_in_a_name_starts_no_line() -> None:
    change = dataclasses.replace(NEW, access_key="ThirdOne\nadmin: true\n- accessKey: Intruder")
    accounts = parse("f", with_account("f", FILE, change, 1)).accounts
    assert [account.access_key for account in accounts] == ["FirstOne", "SecondOne", change.access_key]


@pytest.mark.parametrize("content", [b"accounts: [", b"dataVersion: [{counter: x}]", b"other: 1"])
def test_a_broken_file_is_not_changed(content: bytes) -> None:
    with pytest.raises(ConfigError):
        with_account("f", content, NEW, 1)

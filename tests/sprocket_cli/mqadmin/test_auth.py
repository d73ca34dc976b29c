"""`mqadmin` about users and policies, in this process against two brokers that ask for users."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from sprocket_cli.mqadmin.main import main
from tests.sprocket_cli.programs import BROKER_FLAGS, await_masters, server

_ENABLED = (
    "--set", "authenticationEnabled=true",
    "--set", "authorizationEnabled=true",
    "--set", 'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"secret of inner"}',
)  # fmt: skip


class Guarded(NamedTuple):
    namesrv: str
    brokers: tuple[str, str]
    home: Path


Admin = Callable[..., str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    for name in ("a", "b", "home/conf"):
        (folder / name).mkdir(parents=True)
    (folder / "home" / "conf" / "tools.yml").write_text("accessKey: superuser\nsecretKey: secret-of-superuser\n")
    user = 'initAuthenticationUser={"username":"superuser","password":"secret-of-superuser"}'
    with server(folder, "namesrv", "--set", "listenPort=0") as name_server:
        namesrv = f"127.0.0.1:{name_server.port}"
        flags = ("-n", namesrv, *BROKER_FLAGS, *_ENABLED, "--set", user)
        with (
            server(folder / "a", "broker", *flags) as first,
            server(folder / "b", "broker", *flags, "--set", "brokerName=broker-b") as second,
        ):
            await_masters(namesrv, 2)
            yield Guarded(namesrv, (f"127.0.0.1:{first.port}", f"127.0.0.1:{second.port}"), folder / "home")


@pytest.fixture
def admin(guarded: Guarded) -> Admin:
    def run(*arguments: str, fails: bool = False) -> str:
        environment = {"ROCKETMQ_HOME": str(guarded.home), "NAMESRV_ADDR": guarded.namesrv}
        done = CliRunner().invoke(main, arguments, env=environment)
        assert (done.exit_code != 0) == fails, done.output
        return done.output

    return run


def test_users(admin: Admin, guarded: Guarded) -> None:
    address, other = guarded.brokers
    made = admin("createUser", "-b", address, "-u", "alice", "-p", "secret of alice", "-t", "Normal")
    assert made == f"create user to {address} success.\n"
    again = admin("createUser", "-b", address, "-u", "alice", "-p", "x", fails=True)
    assert "CODE: 16  DESC: The user is existed" in again
    head, row = admin("getUser", "-b", address, "-u", "alice").splitlines()
    assert head.split() == ["#UserName", "#Password", "#UserType", "#UserStatus"]
    assert row.split() == ["alice", "******", "Normal", "enable"]
    assert "secret of alice" in admin("getUser", "-b", address, "-u", "alice", "--showPassword")
    assert admin("updateUser", "-b", address, "-u", "alice", "-s", "disable") == f"update user to {address} success.\n"
    assert "give one of -p, -t and -s" in admin("updateUser", "-b", address, "-u", "alice", fails=True)
    (listed,) = json.loads(admin("listUser", "-b", address, "-f", "ali", "--json"))
    assert listed == {"username": "alice", "password": "******", "userType": "Normal", "userStatus": "disable"}
    assert admin("listUser", "-b", address, "-f", "nobody") == ""
    copied = admin("copyUser", "-f", address, "-t", other, "-u", "alice,nobody")
    assert copied == f"copy user of alice from {address} to {other} success.\n"
    (there,) = json.loads(admin("getUser", "-b", other, "-u", "alice", "--showPassword", "--json"))
    assert there == {"username": "alice", "password": "secret of alice", "userType": "Normal", "userStatus": "disable"}
    assert admin("deleteUser", "-b", address, "-u", "alice") == f"delete user to {address} success.\n"
    assert admin("getUser", "-b", address, "-u", "alice") == ""


def test_acls(admin: Admin, guarded: Guarded) -> None:
    address, other = guarded.brokers
    for broker in guarded.brokers:
        admin("createUser", "-b", broker, "-u", "carol", "-p", "secret of carol")
    said = ("-s", "User:carol", "-r", "Topic:orders*, Group:g", "-a", "Pub,Sub", "-d", "Allow")
    assert admin("createAcl", "-b", address, *said, "-i", "10.0.0.0/8") == f"create acl to {address} success.\n"
    denied = ("-s", "User:carol", "-r", "Group:g", "-a", "All", "-d", "Deny")
    assert admin("updateAcl", "-b", address, *denied) == f"update acl to {address} success.\n"
    head, *lines = admin("getAcl", "-b", address, "-s", "User:carol").splitlines()
    assert head.split() == ["#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"]
    assert [" ".join(line.split()) for line in lines] == [
        "User:carol Custom Topic:orders* [Pub, Sub] [10.0.0.0/8] Allow",
        "User:carol Custom Group:g [All] null Deny",
    ]
    assert "The resource is null." in admin("createAcl", "-b", address, *said[:2], "-r", "x", *said[4:], fails=True)
    copied = admin("copyAcl", "-f", address, "-t", other, "-s", "User:carol")
    assert copied == f"copy acl of User:carol from {address} to {other} success.\n"
    (listed,) = json.loads(admin("listAcl", "-b", other, "-s", "carol", "-r", "Topic", "--json"))
    assert [entry["resource"] for entry in listed["policies"][0]["entries"]] == ["Topic:orders*"]
    admin("deleteAcl", "-b", address, "-s", "User:carol", "-r", "Group:g")
    assert len(admin("listAcl", "-b", address).splitlines()) == 2
    admin("deleteAcl", "-b", address, "-s", "User:carol")
    assert admin("listAcl", "-b", address) == admin("getAcl", "-b", address, "-s", "User:carol") == ""


def test_a_cluster_is_all_its_brokers(admin: Admin, guarded: Guarded) -> None:
    made = admin("createUser", "-c", "DefaultCluster", "-u", "dave", "-p", "secret of dave")
    assert made.splitlines() == [f"create user to {address} success." for address in guarded.brokers]
    listed = admin("listUser", "-c", "DefaultCluster", "-f", "dave").splitlines()
    assert listed[-1] == f"get user from {guarded.brokers[0]} success."
    assert len(listed) == 3
    assert "give exactly one of -b and -c" in admin("deleteUser", "-u", "dave", fails=True)
    admin("deleteUser", "-c", "DefaultCluster", "-u", "dave")
    assert "cluster Other is not known" in admin("deleteUser", "-c", "Other", "-u", "dave", fails=True)


def test_an_unsigned_command_is_refused(guarded: Guarded, tmp_path: Path) -> None:
    arguments = ["listUser", "-b", guarded.brokers[0], "-n", guarded.namesrv]
    done = CliRunner().invoke(main, arguments, env={"ROCKETMQ_HOME": str(tmp_path)})
    assert done.exit_code != 0
    assert "CODE: 16  DESC: username cannot be null." in done.output

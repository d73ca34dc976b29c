"""Commands of an account without policies: one error that says so, and exit status 1."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from sprocket.client.admin.admin_client import AdminError
from sprocket.client.errors import BrokerRefused, ClientError, PermissionDenied, SendFailed
from sprocket.remoting.codes import ResponseCode
from sprocket.remoting.credentials import Credentials
from sprocket_cli import exit_codes
from sprocket_cli.main import main as sprocket
from sprocket_cli.mqadmin.main import main as mqadmin
from sprocket_cli.permission import refusal_in, refusal_text
from tests.sprocket_cli.programs import BROKER_FLAGS, await_masters, server

_GUARDED = (
    "--set", "authenticationEnabled=true",
    "--set", "authorizationEnabled=true",
    "--set", 'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"secret of inner"}',
    "--set", 'initAuthenticationUser={"username":"root","password":"secret of root"}',
)  # fmt: skip
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("guarded")
    with server(folder, "namesrv", "--set", "listenPort=0") as name_server:
        namesrv = f"127.0.0.1:{name_server.port}"
        with server(folder, "broker", "-n", namesrv, *BROKER_FLAGS, *_GUARDED) as broker:
            assert broker.port
            await_masters(namesrv)
            yield namesrv


@pytest.fixture
def command(namesrv: str, tmp_path: Path) -> Command:
    """Run a command as `account`; returns its exit status, and what it wrote to stdout and stderr."""

    def run(account: str, *arguments: str, program: str = "sprocket") -> tuple[int, str, str]:
        home = tmp_path / account
        (home / "conf").mkdir(parents=True, exist_ok=True)
        if account:
            (home / "conf" / "tools.yml").write_text(f"accessKey: {account}\nsecretKey: secret of {account}\n")
        environment = {"ROCKETMQ_HOME": str(home) if account else None, "NAMESRV_ADDR": namesrv}
        done = CliRunner().invoke({"sprocket": sprocket, "mqadmin": mqadmin}[program], arguments, env=environment)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.stdout, done.stderr

    return run


@pytest.fixture
def topic(command: Command) -> str:
    """A topic of root's; alice has no policy."""
    status, _, error = command("root", "updateTopic", "-c", "DefaultCluster", "-t", "Orders", program="mqadmin")
    assert status == 0, error
    command("root", "createUser", "-c", "DefaultCluster", "-u", "alice", "-p", "secret of alice", program="mqadmin")
    return "Orders"


@pytest.mark.parametrize(("account", "signed"), [("alice", "signed by alice"), ("", "not signed: set ROCKETMQ_HOME")])
@pytest.mark.parametrize(
    "arguments",
    [("consume", "Orders", "--wait", "60"), ("send", "Orders", "hello"), ("topic", "create", "Other")],
    ids=lambda arguments: arguments[0],
)
def test_one_error_says_what_is_missing(
    command: Command, topic: str, arguments: tuple[str, ...], account: str, signed: str
) -> None:
    status, output, error = command(account, *arguments)
    assert (status, output) == (exit_codes.FAILURE, "")
    assert re.fullmatch(rf"Error: .*(no permission|cannot be null).*The request was {signed}.*\n", error), error
    assert "writable" not in error
    assert "attempts" not in error


REFUSED = BrokerRefused(ResponseCode.NO_PERMISSION, "User:alice has no permission.", "broker:1")
PLAIN = "org.apache.rocketmq.acl.common.AclException: No permission for topic:orders"


@pytest.mark.parametrize(
    "error",
    [
        REFUSED,
        BrokerRefused(ResponseCode.SYSTEM_ERROR, PLAIN, "broker:1"),
        AdminError("no", ResponseCode.NO_PERMISSION),
        AdminError(f"CODE: 1  DESC: {PLAIN}", ResponseCode.SYSTEM_ERROR),
        PermissionDenied(16, "no permission", "127.0.0.1:10911"),
    ],
)
def test_a_refusal_is_found_behind_what_it_led_to(error: ClientError) -> None:
    assert refusal_in(error) is error
    failed = SendFailed("orders", ["broker-a"] * 3, 10, error)
    failed.__cause__ = error
    assert refusal_in(failed) is error


def test_other_errors_are_no_refusals() -> None:
    error = BrokerRefused(ResponseCode.SYSTEM_BUSY, "too many requests", "broker:1")
    failed = SendFailed("orders", ["broker-a"], 10, error)
    failed.__cause__ = error
    assert refusal_in(failed) is None


def test_what_everybody_is_refused_says_nothing_of_accounts() -> None:
    read_only = BrokerRefused(ResponseCode.NO_PERMISSION, "the topic[orders] sending message is forbidden", "broker:1")
    assert refusal_text(read_only, None) == str(read_only)
    alice = Credentials("alice", "secret of alice")
    assert refusal_text(REFUSED, alice).endswith(
        "no permission. The request was signed by alice, the account in $ROCKETMQ_HOME/conf/tools.yml"
    )


def test_a_group_without_permission_is_named(command: Command, topic: str) -> None:
    subject, granted = ("-c", "DefaultCluster", "-s", "User:alice"), ("-a", "Sub", "-d", "Allow")
    status, _, error = command("root", "createAcl", *subject, "-r", f"Topic:{topic}", *granted, program="mqadmin")
    assert status == 0, error
    status, output, error = command("alice", "consume", topic, "-g", "readers", "--wait", "60")
    assert (status, output) == (exit_codes.FAILURE, "")
    assert "Group:readers" in error
    resources = f"Topic:{topic},Group:readers"
    command("root", "updateAcl", *subject, "-r", resources, *granted, program="mqadmin")
    assert command("alice", "consume", topic, "-g", "readers", "--wait", "0.5") == (0, "", "")
    command("root", "deleteAcl", *subject, program="mqadmin")

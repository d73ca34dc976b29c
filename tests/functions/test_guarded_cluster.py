"""`sprocket function` against a broker with access control and TLS: deployed, run, rolled, refused, killed, deleted.

The machine has the rights that docs/functions.md names, and no others.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from sprocket.testing import Broker
from sprocket_cli.main import main as sprocket
from sprocket_cli.mqadmin.main import main as mqadmin

_GUARDED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secret of inner"}',
    "initAuthenticationUser": '{"username":"root","password":"secret of root"}',
    "tls.test.mode.enable": "true",
    "autoCreateTopicEnable": "false",
}
_TLS = "-Dtls.enable=true -Dtls.test.mode.enable=true"
_RIGHTS = (
    ("Topic:Orders,Topic:sprocket-functions,Topic:sprocket-function-code", "Sub,Get"),
    ("Topic:billing-changelog,Topic:Invoices,Topic:%DLQ%billing", "Pub,Sub,Get"),
    ("Topic:sprocket-function-status", "Pub"),
    ("Group:billing,Group:sprocket-tables", "Sub"),
)
CODE = """
import os
from sprocket.functions import Context, Retries, function

%s

@function(input="Orders", output="Invoices", group="billing", state=int, retries=Retries(times=0))
async def bill(body: bytes, ctx: Context[int]) -> str:
    total = (ctx.state.get("total") or 0) + int(body)
    ctx.state.put("total", total)
    mood = ctx.message.properties.get("MOOD", "")
    if mood == "hungry":
        bytearray(2 << 30)
    if mood == "lost":
        ctx.send("Nowhere", b"x")
    return f"%s{total}"
"""


class Shell:
    """Commands of one account."""

    def __init__(self, folder: Path, namesrv: str, account: str) -> None:
        self.folder = folder
        (folder / account / "conf").mkdir(parents=True)
        (folder / account / "conf" / "tools.yml").write_text(f"accessKey: {account}\nsecretKey: secret of {account}\n")
        own = {"ROCKETMQ_HOME": str(folder / account), "NAMESRV_ADDR": namesrv, "JAVA_OPT": _TLS}
        self.environment = dict(os.environ) | own

    def command(self, *arguments: str) -> list[str]:
        """A command in a process of its own."""
        return [str(Path(sys.executable).with_name("sprocket")), *arguments]

    def __call__(self, *arguments: str, program: click.Command = sprocket, fails: bool = False) -> str:
        """Run a command in this process; return what it prints."""
        done = CliRunner().invoke(program, arguments, env=self.environment)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert (done.exit_code != 0) == fails, done.output
        return done.output

    def deploy(self, *arguments: str, fails: bool = False) -> str:
        """Deploy `billing.py`, whose import stays in that process."""
        done = subprocess.run(
            self.command("function", "deploy", "billing.py", *arguments), env=self.environment, cwd=self.folder,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def reports(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self("function", "status", "billing", "--json"))
        return found

    def wait(self, condition: Callable[[list[dict[str, Any]]], object]) -> list[dict[str, Any]]:
        """Wait until the reports fulfil a condition."""
        deadline = time.monotonic() + 60
        while not condition(found := self.reports()):
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        return found


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Shell]:
    with Broker(tmp_path / "broker", properties=_GUARDED) as broker:
        shell = Shell(tmp_path, broker.namesrv, "root")
        for topic in ("Orders", "Invoices"):
            shell("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "1", "-w", "1", program=mqadmin)
        shell("createUser", "-c", "DefaultCluster", "-u", "runner", "-p", "secret of runner", program=mqadmin)
        for resource, actions in _RIGHTS:
            said = ("-s", "User:runner", "-r", resource, "-a", actions, "-d", "Allow")
            shell("createAcl", "-c", "DefaultCluster", *said, program=mqadmin)
        yield shell


def test_an_account_without_rights_is_refused_at_once(root: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    root("createUser", "-c", "DefaultCluster", "-u", "nobody", "-p", "secret of nobody", program=mqadmin)
    nobody = Shell(root.folder, root.environment["NAMESRV_ADDR"], "nobody")
    assert "nothing is deployed here yet" in root("function", "run", "--trust-cluster", fails=True)
    assert "nothing is deployed here yet" in root("function", "list", fails=True)
    (root.folder / "billing.py").write_text(CODE % ("", "v1:"))
    assert "no permission" in nobody.deploy(fails=True)
    root.deploy()
    assert "no permission" in nobody("function", "list", fails=True)
    monkeypatch.chdir(root.folder)
    assert "no permission" in nobody("function", "run", "--trust-cluster", fails=True)
    assert not (root.folder / "sprocket-functions").exists()


@contextmanager
def machine(root: Shell) -> Iterator[subprocess.Popen[bytes]]:
    """`sprocket function run` as the account `runner`."""
    runner = Shell(root.folder, root.environment["NAMESRV_ADDR"], "runner")
    run = ("function", "run", "billing", "--key", "key", "--machine", "m1", "--metrics-port", "0")
    with (root.folder / "run.log").open("wb") as log:
        process = subprocess.Popen(
            runner.command(*run), env=runner.environment | {"BROKEN": "1"}, cwd=root.folder, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def states(reports: list[dict[str, Any]]) -> list[tuple[int, int, str]]:
    return [(one["index"], one["version"], one["state"]) for one in reports]


@pytest.mark.timeout(240)
def test_a_deployment_from_its_first_version_to_its_end(root: Shell) -> None:
    source, key = root.folder / "billing.py", root.folder / "key"
    key.write_text("a key that is long enough")
    source.write_text(CODE % ("", "v1:"))
    assert "version 1: bill" in root.deploy("--key", "key", "--instances", "2", "--memory-mb", "900", "--cpus", "1")
    with machine(root) as process:
        root.wait(lambda found: states(found) == [(-1, 1, "running"), (0, 1, "running"), (1, 1, "running")])
        root("send", "Orders", "3")
        assert "v1:3" in root("consume", "Invoices", "--from", "first", "--max", "1")

        # More memory than the limit: the try fails, and the process goes on.
        root("send", "Orders", "4", "--property", "MOOD=hungry")
        found = root.wait(lambda found: sum(one["counts"].get("dead_letters", 0) for one in found) == 1)
        assert "MemoryError" in "".join(one["error"] for one in found)

        # A topic that is not there fails the input that is sent to it.
        root("send", "Orders", "4", "--property", "MOOD=lost")
        found = root.wait(lambda found: sum(one["counts"].get("dead_letters", 0) for one in found) == 2)
        assert "sprocket topic create Nowhere" in "".join(one["error"] for one in found)

        # A version that does not start here leaves the one before in work.
        source.write_text(CODE % ("assert 'BROKEN' not in os.environ", "v2:"))
        assert "version 2" in root.deploy("--key", "key")
        found = root.wait(lambda found: found[0]["state"] == "failed" and len(found) == 3)
        assert "version 2 does not start" in found[0]["error"] and "AssertionError" in found[0]["error"]
        assert states(found[1:]) == [(0, 1, "running"), (1, 1, "running")]
        assert "AssertionError" in root("function", "logs", "billing")

        # Code without the signature is not run.
        source.write_text(CODE % ("", "v3:"))
        root.deploy()
        found = root.wait(lambda found: "not signed" in found[0]["error"])
        assert states(found[1:]) == [(0, 1, "running"), (1, 1, "running")]

        # The next version goes on with the state.
        assert "version 4" in root.deploy("--key", "key")
        root.wait(lambda found: states(found) == [(-1, 4, "running"), (0, 4, "running"), (1, 4, "running")])
        root("send", "Orders", "5")
        assert "v3:8" in root("consume", "Invoices", "--max", "1")
        assert "version 3" in root("function", "rollback", "billing")
        root.wait(lambda found: "not signed" in found[0]["error"])
        assert "version 1" in root("function", "rollback", "billing", "--version", "1")
        found = root.wait(lambda found: states(found) == [(-1, 1, "running"), (0, 1, "running"), (1, 1, "running")])

        # An instance that is killed is started again.
        killed = found[1]["pid"]
        os.kill(killed, signal.SIGKILL)
        root.wait(lambda found: found[1]["pid"] != killed and found[1]["state"] == "running")
        root.wait(lambda found: "instance 0 was killed" in found[0]["error"])

        root("function", "stop", "billing")
        root.wait(lambda found: states(found) == [(-1, 0, "stopped")])
        root("function", "start", "billing")
        root.wait(lambda found: states(found) == [(-1, 1, "running"), (0, 1, "running"), (1, 1, "running")])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert root.reports() == []
    assert "billing" in root("function", "list")
    root("function", "delete", "billing")
    assert "billing" not in root("function", "list")
    assert "no function is deployed as billing" in root("function", "status", "billing", fails=True)

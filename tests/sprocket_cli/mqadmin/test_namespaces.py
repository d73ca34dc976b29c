"""A tenant from nothing to its first message, with mqadmin: every server asks for users."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest
from click.testing import CliRunner

import sprocket
from sprocket import Credentials, Message
from sprocket.client.admin.admin_client import AdminClient
from sprocket.client.errors import ClientError
from sprocket.remoting.bodies.quota import Quota
from sprocket_cli.main import main as sprocket_main
from sprocket_cli.mqadmin.main import main
from tests.dashboard.rig import running
from tests.sprocket_cli.programs import BROKER_FLAGS, await_masters, server

OWN, OTHER = "shop|sales", "shop|billing"
OF_THE_PAGE = "shop|orders"
_KEYS = (
    "--set", "authenticationEnabled=true",
    "--set", "authorizationEnabled=true",
    "--set", 'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"secret of inner"}',
    "--set", 'initAuthenticationUser={"username":"root","password":"secret-of-root"}',
)  # fmt: skip
Admin = Callable[..., str]


class Servers(NamedTuple):
    namesrv: str
    broker: str
    folder: Path


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("tenants")
    for name in ("namesrv", "broker"):
        (folder / name).mkdir()
    CliRunner().invoke(sprocket_main, ["token", "keys", "create", str(folder / "keys")])
    keys = (*_KEYS, "--set", f"tokenPublicKey={folder / 'keys' / 'public.json'}")
    with server(folder / "namesrv", "namesrv", "--set", "listenPort=0", *keys) as name_server:
        namesrv = f"127.0.0.1:{name_server.port}"
        with server(folder / "broker", "broker", "-n", namesrv, *BROKER_FLAGS, *keys) as broker:
            await_masters(namesrv, 1, Credentials("root", "secret-of-root"))
            yield Servers(namesrv, f"127.0.0.1:{broker.port}", folder)


def home(folder: Path, user: str, password: str) -> Path:
    """Return a home of tools that sign as `user`."""
    made = folder / user.replace("|", "-").replace("%", "-")
    (made / "conf").mkdir(parents=True, exist_ok=True)
    (made / "conf" / "tools.yml").write_text(json.dumps({"accessKey": user, "secretKey": password}))
    return made


def tools_of(servers: Servers, user: str) -> Admin:
    environment = {
        "ROCKETMQ_HOME": str(home(servers.folder, user, f"secret-of-{user.rpartition('%')[2]}")),
        "NAMESRV_ADDR": servers.namesrv,
    }

    def run(*arguments: str, fails: bool = False) -> str:
        done = CliRunner().invoke(main, arguments, env=environment)
        assert (done.exit_code != 0) == fails, done.output
        return done.output

    return run


@pytest.fixture(scope="module")
def tenants(servers: Servers) -> dict[str, Admin]:
    """The operator's tools, and those of the administrators of two namespaces, each with a topic and a group."""
    operator = tools_of(servers, "root")
    found = {"root": operator}
    for namespace in (OWN, OTHER):
        user = f"{namespace}%admin"
        for address in (servers.namesrv, servers.broker):
            operator("createUser", "-b", address, "-u", user, "-p", "secret-of-admin")
            rights = ("-s", f"User:{user}", "-r", f"Namespace:{namespace}", "-a", "All", "-d", "Allow")
            operator("createAcl", "-b", address, *rights)
        own = found[namespace] = tools_of(servers, user)
        own("updateTopic", "-c", "DefaultCluster", "-t", f"{namespace}%Paid")
        own("updateSubGroup", "-c", "DefaultCluster", "-g", f"{namespace}%readers")
    operator("updateTopic", "-c", "DefaultCluster", "-t", "Shared")
    return found


def test_an_administrator_sees_the_names_in_the_namespace(tenants: dict[str, Admin]) -> None:
    assert tenants[OWN]("topicList").split() == [f"{OWN}%Paid"]
    everything = tenants["root"]("topicList").split()
    assert {f"{OWN}%Paid", f"{OTHER}%Paid", "Shared"} <= set(everything)
    tenants[OWN]("topicStatus", "-t", f"{OWN}%Paid")
    assert "no permission" in tenants[OWN]("topicStatus", "-t", f"{OTHER}%Paid", fails=True)
    assert "no permission" in tenants[OWN]("topicStatus", "-t", "Shared", fails=True)
    assert "no permission" in tenants[OWN]("brokerStatus", "-c", "DefaultCluster", fails=True)


def test_an_administrator_manages_the_accounts_of_the_namespace(tenants: dict[str, Admin], servers: Servers) -> None:
    own, user = tenants[OWN], f"{OWN}%app"
    for address in (servers.namesrv, servers.broker):
        own("createUser", "-b", address, "-u", user, "-p", "secret-of-app")
        own("createAcl", "-b", address, "-s", f"User:{user}", "-r", f"Topic:{OWN}%*", "-a", "Pub", "-d", "Allow")
        assert [line.split()[0] for line in own("listUser", "-b", address).splitlines()[1:]] == [f"{OWN}%admin", user]
        assert OTHER not in own("listAcl", "-b", address)
        beyond = ("-s", f"User:{user}", "-r", f"Topic:{OTHER}%*", "-a", "Pub", "-d", "Allow")
        assert "no permission" in own("updateAcl", "-b", address, *beyond, fails=True)
        assert "no permission" in own("createUser", "-b", address, "-u", "stranger", "-p", "x", fails=True)
        assert "no permission" in own("deleteUser", "-b", address, "-u", f"{OTHER}%admin", fails=True)
        assert "super user" in own("createUser", "-b", address, "-u", f"{OWN}%x", "-p", "x", "-t", "Super", fails=True)


def test_an_application_sends_in_its_namespace_alone(tenants: dict[str, Admin], servers: Servers) -> None:
    user = f"{OWN}%sender"
    for address in (servers.namesrv, servers.broker):
        tenants[OWN]("createUser", "-b", address, "-u", user, "-p", "secret-of-sender")
        rights = ("-s", f"User:{user}", "-r", f"Namespace:{OWN}", "-a", "Pub,Sub", "-d", "Allow")
        tenants[OWN]("createAcl", "-b", address, *rights)
    credentials = Credentials(user, "secret-of-sender")

    async def send() -> None:
        async with sprocket.connect(servers.namesrv, credentials=credentials) as mq:
            sent = await mq.producer().send(Message(f"{OWN}%Paid", b"first"))
            assert sent.queue.topic == f"{OWN}%Paid"
            for topic in (f"{OTHER}%Paid", "Shared"):
                with pytest.raises(ClientError, match="no permission"):
                    await mq.producer().send(Message(topic, b"x"))

    asyncio.run(send())


async def test_an_administrator_sees_nothing_else_in_the_dashboard(tenants: dict[str, Admin], servers: Servers) -> None:
    paths = ("/", "/topics", "/groups", "/accounts", "/dead-letters", "/messages", "/offsets", "/charts", "/send",
             "/namespaces", "/quotas", "/schedules")  # fmt: skip
    async with AdminClient([servers.namesrv], credentials=Credentials("root", "secret-of-root")) as root:
        for name in (f"topic:{OWN}%*", f"namespace:{OWN}", f"namespace:{OTHER}", "topic:Shared", "tenant:shop"):
            await root.set_quota(servers.broker, Quota(name, messages_in=1_000_000))
    async with running(servers.namesrv) as (_, visitor):
        assert (await visitor.log_in(f"{OWN}%admin", "secret-of-admin")).status == 303
        shown = {path: await visitor.get(path) for path in paths}
        for path, page in shown.items():
            assert page.status in (200, 403), path
            for hidden in (OTHER, "Shared"):
                assert hidden not in page.html, (path, hidden)
        assert f"{OWN}%Paid" in shown["/topics"].html and f"{OWN}%readers" in shown["/groups"].html
        assert OWN in shown["/namespaces"].html
        assert f"topic:{OWN}%*" in shown["/quotas"].html and "tenant:shop<" not in shown["/quotas"].html
        for path in ("/quotas/set", "/quotas/delete", "/namespaces/set", "/namespaces/delete"):
            token = await visitor.token("/")
            refused = await visitor.post(path, None, token=token, name=f"namespace:{OWN}", requests="1")
            assert refused.status == 403, path
        for path in (f"/topic?topic={quote(f'{OTHER}%Paid')}", f"/group?group={quote(f'{OTHER}%readers')}"):
            assert (await visitor.get(path)).status in (403, 404), path


def blocks_of(heading: str, page: str = "namespaces.md") -> list[str]:
    """Return the shell commands of a part of a page, block by block."""
    text = (Path(__file__).parents[3] / "docs" / page).read_text(encoding="utf-8")
    part = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```", part, re.DOTALL | re.MULTILINE)


def environment_of(servers: Servers, user: str, password: str) -> dict[str, str]:
    """Return the environment of a person at a shell with an account."""
    return os.environ | {
        "ROCKETMQ_HOME": str(home(servers.folder / "page", user, password)),
        "NAMESRV_ADDR": servers.namesrv,
        "SPROCKET_ACCOUNT_PASSWORD": "page",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }


def shell(commands: str, environment: dict[str, str], folder: Path, code: int = 0) -> str:
    """Run commands of a page in `folder`, and return what they print."""
    done = subprocess.run(
        ["bash", "-ec", commands], env=environment, capture_output=True, text=True, timeout=120, check=False, cwd=folder
    )
    assert done.returncode == code, (commands, done.stdout, done.stderr)
    return done.stdout + done.stderr


def test_the_page_leads_from_nothing_to_the_first_message(servers: Servers) -> None:
    accounts = (("root", "secret-of-root"), (f"{OF_THE_PAGE}%admin", "page"), (f"{OF_THE_PAGE}%app", "page"))
    blocks = blocks_of("A tenant, from nothing to the first message")
    assert len(blocks) == len(accounts)
    output = ""
    for (user, password), commands in zip(accounts, blocks, strict=True):
        environment = environment_of(servers, user, password)
        output += shell(commands, environment, servers.folder)
    assert f"{OF_THE_PAGE}%admin is its administrator" in output and "order 1" in output
    refused = subprocess.run(
        ["sprocket", "namespace", "limits", OF_THE_PAGE], env=environment, capture_output=True, text=True, check=False
    )
    assert refused.returncode != 0 and "no permission" in refused.stderr
    # The same application with a token, until the operator ends it.
    make, use, revoke = blocks_of("A token in place of the password")
    root = environment_of(servers, "root", "secret-of-root")
    assert f"{OF_THE_PAGE}%app" in shell(make, root, servers.folder)
    shell(use, root, servers.folder)
    shell(revoke, root, servers.folder)
    assert "is revoked; present a new one" in shell(use, root, servers.folder, code=1)


def test_the_page_shows_a_quota_that_is_exceeded(servers: Servers) -> None:
    (commands,) = blocks_of("Try it", "quotas.md")
    output = shell(commands, environment_of(servers, "root", "secret-of-root"), servers.folder)
    (line,) = [line.split() for line in output.splitlines() if "topic:Orders" in line and "messages_in" in line]
    assert int(line[-1]) > 0

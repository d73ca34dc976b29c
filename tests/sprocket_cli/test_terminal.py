"""No text from a server controls the terminal of the user of a command."""

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from sprocket.client.admin.admin_client import AdminError
from sprocket.client.errors import refusal
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request, Response
from sprocket.remoting.routes import NoHeader
from sprocket_cli.mqadmin.main import main as mqadmin
from sprocket_cli.terminal import visible
from tests.client.fake_cluster import FakeServer, route
from tests.sprocket_cli.programs import COMMAND
from tests.store.rig import Stores, message

ATTACK = "\x1b]0;owned\x07 \x1b[2J\x9b1A\r\u202egone"
SHOWN = "\\u001b]0;owned\\u0007 \\u001b[2J\\u009b1A\\u000d\\u202egone"


def test_line_breaks_tabs_and_letters_stay() -> None:
    assert visible("a\n\tKöln 注文") == "a\n\tKöln 注文"
    assert visible(ATTACK) == SHOWN
    assert json.loads(visible(json.dumps(ATTACK, ensure_ascii=False))) == ATTACK


def test_errors_of_the_client_say_a_servers_text_escaped_and_keep_it() -> None:
    error = refusal(ResponseCode.SYSTEM_ERROR, f"no\n{ATTACK}", "127.0.0.1:1")
    assert str(error).isprintable()
    assert "no\\n\\x1b]0;owned" in str(error)
    assert error.remark == f"no\n{ATTACK}"
    assert str(AdminError(ATTACK)).isprintable()


async def test_a_refusal_by_a_server_is_escaped_by_mqadmin() -> None:
    def refused(_: Request[Any]) -> Response:
        return Response(ResponseCode.SYSTEM_ERROR, ATTACK)

    async with FakeServer([route(RequestCode.GET_BROKER_CLUSTER_INFO, NoHeader, refused)]) as server:
        result = await asyncio.to_thread(CliRunner().invoke, mqadmin, ["clusterList", "-n", server.address])
    assert result.exit_code == 1
    assert result.stderr.removesuffix("\n").isprintable()
    assert "gone" in result.stderr


def test_what_a_command_shows_of_messages_is_escaped_on_a_terminal_and_whole_in_a_pipe(tmp_path: Path) -> None:
    stores = Stores(tmp_path / "store")
    store = stores.open()
    store.append([message("Orders", 0, ATTACK.encode(), tag="t", properties=b"KEYS\x01k\x02")])
    stores.close(store)
    command = [*COMMAND, "store", "dump", str(tmp_path / "store")]
    piped = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(piped.stdout)["body"] == ATTACK

    ours, theirs = os.openpty()
    try:
        with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE) as process:
            os.close(theirs)
            screen = b""
            while b"}\r\n" not in screen:
                screen += os.read(ours, 65536)
        assert process.returncode == 0
    finally:
        os.close(ours)
    shown = screen.decode().removesuffix("\r\n")
    assert shown.isprintable()
    assert json.loads(shown)["body"] == ATTACK

"""A project with packages of the same names as ours uses the fixture and the client."""

import subprocess
import sys
from pathlib import Path

PROJECT_TEST = """
import asyncio
import os

import broker
import common
import store
from sprocket import ConsumeFrom, Consumer, Message, Producer


def test_with_packages_of_our_own(sprocket_broker):
    assert (broker.NAME, common.NAME, store.NAME) == ("our broker", "our common", "our store")

    async def round_trip():
        async with Producer("g", sprocket_broker.namesrv) as producer:
            await producer.send(Message("T", b"hello"))
        async with Consumer("c", ["T"], sprocket_broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer:
            message = await anext(consumer)
            await consumer.ack(message)
            return message.body

    assert asyncio.run(round_trip()) == b"hello"
    with open("pid", "w") as file:
        file.write(str(sprocket_broker.pid))
"""


def project(directory: Path) -> Path:
    for name in ("store", "broker", "common"):
        (directory / name).mkdir()
        (directory / name / "__init__.py").write_text(f'NAME = "our {name}"\n')
    (directory / "test_project.py").write_text(PROJECT_TEST)
    (directory / "conftest.py").write_text("")
    return directory


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=200, check=False)


def test_project_with_packages_of_the_same_names(tmp_path: Path) -> None:
    outcome = run(project(tmp_path))
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "1 passed" in outcome.stdout
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists(), "the broker outlived the test"


def test_plugin_imports_nothing_before_it_is_used() -> None:
    code = (
        "import sys, sprocket.testing.plugin, sprocket;"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in"
        " ('broker', 'namesrv', 'store', 'msgspec') or name.startswith('sprocket.c')))"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert outcome.stdout.strip() == "[]"


def test_client_imports_no_server() -> None:
    code = (
        "import sys; from sprocket import *;"
        "servers = {'broker', 'namesrv', 'store', 'ha', 'acl', 'spark', 'numpy'};"
        "print(sorted(servers & {name.partition('.')[0] for name in sys.modules}))"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert outcome.stdout.strip() == "[]"


def test_scope_that_is_none_is_told(tmp_path: Path) -> None:
    outcome = run(project(tmp_path), "-o", "sprocket_broker_scope=forever")
    assert "allowed is one of function, class, module, package, session" in outcome.stdout + outcome.stderr

"""Each rule finds what it is for, and leaves its look-alikes alone."""

import ast

import pytest

from tests.tidy import rules
from tests.tidy.late_attributes import attributes, late_attributes


@pytest.mark.parametrize(
    ("source", "seam"),
    [
        ("import time\ntime.time()", "clock"),
        ("from time import monotonic as now\nnow()", "clock"),
        ("import datetime as dt\ndt.datetime.now()", "clock"),
        ("from datetime import datetime\ndatetime.utcnow()", "clock"),
        ("open('x')", "disk"),
        ("reader = open", "disk"),
        ("import os\nos.fdatasync(3)", "disk"),
        ("def f(path): return path.read_bytes()", "disk"),
        ("import socket\nsocket.create_connection(('a', 1))", "network"),
        ("from socket import AF_INET\nprint(AF_INET)", "network"),
        ("import random\nrandom.randint(1, 2)", "randomness"),
        ("import numpy as np\nnp.random.default_rng()", "randomness"),
        ("import uuid\nuuid.uuid4()", "randomness"),
        ("import asyncio\nasync def f(): await asyncio.sleep(1)", "sleep"),
    ],
)
def test_seam_use_is_found(source: str, seam: str) -> None:
    assert [finding.rule for finding in rules.seam_uses(source)] == [seam]


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.strftime('%Y')",
        "def f(clock): return clock.time()",
        "def f(disk): return disk.open('x')",
        "import asyncio\nasyncio.get_running_loop()",
        "import os\nos.path.join('a', 'b')",
        "self.random = 1",
    ],
)
def test_look_alike_is_no_seam_use(source: str) -> None:
    assert list(rules.seam_uses(source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "Response(ResponseCode.NO_PERMISSION, 'no')",
        "Response(code=ResponseCode.SYSTEM_ERROR)",
        "Response(code, remark)",
        "ResponseTemplate(ResponseCode.SYSTEM_BUSY, ())",
    ],
)
def test_refusal_that_nothing_counts_is_found(source: str) -> None:
    assert [finding.rule for finding in rules.uncounted_refusals(source)] == ["refusal"]


@pytest.mark.parametrize(
    "source",
    [
        "Response()",
        "Response(remark='done')",
        "Response(ResponseCode.SUCCESS, None)",
        "Response(ResponseCode.PULL_NOT_FOUND)",
        "Refusal(ResponseCode.NO_PERMISSION, 'no')",
        "ReceivedResponse(code=code)",
    ],
)
def test_look_alike_is_no_refusal(source: str) -> None:
    assert list(rules.uncounted_refusals(source)) == []


def test_function_of_61_lines_is_long_and_of_60_is_not() -> None:
    body = "    pass\n"
    assert list(rules.long_functions("def f():\n" + body * 59)) == []
    assert [finding.what for finding in rules.long_functions("async def f():\n" + body * 60)] == ["f has 61 lines"]


def test_file_of_601_lines_is_long_and_of_600_is_not() -> None:
    assert list(rules.long_file("x = 1\n" * 600)) == []
    assert len(list(rules.long_file("x = 1\n" * 601))) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("utils", ""),
        ("string_util", ""),
        ("helpers", ""),
        ("topic_manager", ""),
        ("x", "class TopicConfigManager: ..."),
        ("x", "class TestHelper: ..."),
        ("x", "class StringUtils: ..."),
    ],
)
def test_forbidden_name_is_found(module: str, source: str) -> None:
    assert len(list(rules.forbidden_names(module, source))) == 1


@pytest.mark.parametrize("name", ["topics", "utility_bill", "commit_log", "futile"])
def test_other_name_is_allowed(name: str) -> None:
    assert list(rules.forbidden_names(name, "class CommitLog: ...")) == []


@pytest.mark.parametrize(
    "call",
    [
        "log.info('started')",
        "log.info('event=Started')",
        "log.warning('file=%s action=removed', path)",
        "log.warning('event=file_removed of %s', path)",
        "log.warning('event=%s_refused peer=%s', kind, peer)",
        "log.warning(f'event=refused peer={peer}')",
        "log.exception(text)",
        "log.log(level, 'event=a b')",
        "peer_lines.info(log, peer, 'refused')",
        "peer_lines.log(log, level, peer, 'refused')",
    ],
)
def test_free_log_line_is_found(call: str) -> None:
    source = f"import logging\nlog = logging.getLogger('a')\n{call}"
    assert [(finding.line, finding.rule) for finding in rules.free_log_lines(source)] == [(3, "log line")]


@pytest.mark.parametrize(
    "call",
    [
        "log.info('event=stopped')",
        "log.info('event=a_2 maxSize=%d peer=%s:%s reason=%r', 1, 2, 3, 4)",
        "log.info('event=access decision=deny %s', facts)",
        "log.log(level, 'event=a')",
        "peer_lines.info(log, peer, 'event=a')",
        "peer_lines.log(log, level, peer, 'event=a')",
        "log.setLevel('INFO')",
        "other.info('free text')",
        "math.log(x)",
    ],
)
def test_other_call_is_no_free_log_line(call: str) -> None:
    assert list(rules.free_log_lines(f"import logging\nlog = logging.getLogger('a')\n{call}")) == []


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("log.warning('event=refused peer=%s', peer)", ["refused"]),
        ("log.log(level, 'event=refused')", ["refused"]),
        ("log.exception('event=refused')", ["refused"]),
        ("peer_lines.warning(log, peer, 'event=refused peer=%s', peer)", []),
        ("peer_lines.log(log, level, peer, 'event=refused')", []),
    ],
)
def test_line_without_a_limit_is_found(call: str, found: list[str]) -> None:
    source = f"import logging\nlog = logging.getLogger('a')\n{call}"
    assert [finding.what for finding in rules.unlimited_lines(source)] == found


def test_private_access_is_found_if_the_name_is_the_products_alone() -> None:
    product = rules.private_names(
        "_LIMIT = 1\nclass A:\n    def __init__(self):\n        self._rows = self.all = ()\n    def _walk(self): ...\n"
    )
    assert product == {"_LIMIT", "_rows", "_walk"}
    test = (
        "class B:\n    def _walk(self): self._rows\ndef test(a):\n    a._rows = a._other\n    a._walk(module._LIMIT)\n"
    )
    found = [(finding.line, finding.what) for finding in rules.private_accesses(test, product)]
    assert found == [(4, "a._rows"), (5, "module._LIMIT")]


def test_namedtuple_methods_are_not_private() -> None:
    assert rules.private_names("class A:\n    def _replace(self): ...\n    def __len__(self): ...\n_ = 1\n") == set()


def test_machine_path_is_found() -> None:
    found = list(rules.machine_paths("fine /usr/bin\n" + "see /" + "work/main\n/" + "home/joe/x"))
    assert [finding.line for finding in found] == [2, 3]


OBJECTS = """
class Listener:
    def __init__(self): self.guard = None; self.end = 0
    def close(self): self.end = 1
class Store:
    @property
    def host(self): return b""
    @host.setter
    def host(self, host): ...
class Sessions(Protocol):
    guard: Callable[[], None]
class Record:
    end: int
class Slots:
    __slots__ = ("count",)
    def __init__(self): self.count = 0
"""


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("listener.guard = f", True),
        ("def f(self): self.listener.guard = self.admit", True),
        ("def f(parts): parts.x.guard += [1]", True),
        ("(listener.guard, other) = 1, 2", True),
        ("for listener.guard in x: ...", True),
        ("with x as listener.guard: ...", True),
        ("store.host = b'x'", True),
        ("def f(self): self.listener.end = 2", True),
        ("def f(record): record.end = 2", False),  # `Record` has it, too
        ("def f(self): self.guard = None", False),
        ("def f(self): self.slots.count += 1", False),
        ("print(listener.guard)", False),
        ("listener.on_end.append(f)", False),
    ],
)
def test_late_attribute_is_found(source: str, is_found: bool) -> None:
    trees = {"objects.py": ast.parse(OBJECTS), "user.py": ast.parse(source)}
    found = list(late_attributes("user.py", trees["user.py"], attributes(trees)))
    assert bool(found) is is_found


def test_attribute_may_be_set_in_the_file_of_its_class() -> None:
    trees = {"objects.py": ast.parse(OBJECTS + "\ndef f(listener): listener.guard = 1")}
    assert not list(late_attributes("objects.py", trees["objects.py"], attributes(trees)))

"""Writer of docs/compatibility.md: how every request code of RocketMQ is supported.

The routes of a broker, a name server, a controller and the client tell which codes are served;
`docs.pages.unsupported_codes` has the reasons for the others.  The tests are those with the mark
``@pytest.mark.code(RequestCode.X)``.  Run as
``python -m docs.pages.compatibility_page <file>`` (`make docs`); a test compares the file with it.
"""

import ast
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.server import Broker
from controller.config import ControllerConfig
from controller.server import Controller
from docs.pages.command import write
from docs.pages.unsupported_codes import UNSUPPORTED
from namesrv.config import NamesrvConfig
from namesrv.server import NameServer
from sprocket.remoting.codes import RequestCode
from store.config.store_config import StoreConfig

ROOT: Final = Path(__file__).resolve().parents[2]
# Folder of each server's own tests: they are listed before other tests.
_FOLDERS: Final = {"broker": "broker", "name server": "namesrv", "controller": "controller", "client": "client"}
_HEAD: Final = """\
# Compatibility

Written by `make docs` from the routes in the code; do not edit.

Every request code of Apache RocketMQ 5.3.3, and those of 5.5.1 that Sprocket knows (5002, 5003, 200070 to 200079):
which part serves it, and the tests that send it. RocketMQ 5.5.1 has all codes of 5.3.3 under the same numbers, and 13
more; of these Sprocket does not know SWITCH_TIMER_ENGINE (5001), which is about RocksDB. A dash in both columns is a
code of older versions, or one of Sprocket's own.
The response to any other code is REQUEST_CODE_NOT_SUPPORTED with the code's name. NEGOTIATE_HA_SESSION,
PROVE_BROKER_IDENTITY, FORGET_CONTROLLER, ADOPT_BROKER_GROUP, REVOKE_TOKEN, and those of quotas (21005 to 21008, 21013),
namespaces (21010 to 21012) and schedules (21020 to 21025) are Sprocket's own, see [quotas.md](quotas.md),
[namespaces.md](namespaces.md), [schedules.md](schedules.md),
[replication-protocol.md](replication-protocol.md), [security.md](security.md#other-brokers) and
[failover.md](failover.md#commands).

[compatibility-acceptance.md](compatibility-acceptance.md) has a column for each version of a client that is tested.
Methods and status codes of gRPC are in [proxy.md](proxy.md#methods), and so are the requests that the proxy serves
at its [remoting port](proxy.md#remoting-clients).

"""


# Source: `RequestCode` of RocketMQ 5.3.3 and 5.5.1.
_SINCE_5_5: Final = frozenset({5002, 5003, *range(200070, 200080)})
_NEITHER: Final = frozenset({*range(50, 55), *range(21001, 21100)})


class MarkedTest(NamedTuple):
    """Test with a mark for a request code; `path` is its file, relative to the project's folder."""

    path: str
    name: str


class Row(NamedTuple):
    """One request code: its servers or the reason for none, and its tests, the server's own first."""

    code: RequestCode
    servers: tuple[str, ...]
    reason: str
    tests: tuple[MarkedTest, ...]


def rows(root: Path = ROOT) -> list[Row]:
    """Return a row for every code, by number; `root` is the project's folder."""
    served = served_codes(root)
    tests = marked_tests(root)
    made = []
    for code in sorted(RequestCode):
        servers = tuple(name for name, codes in served.items() if code in codes)
        folders = [_FOLDERS[name] for name in servers]
        ordered = sorted(tests.get(code, ()), key=lambda test: (_distance(test.path, folders), test))
        made.append(Row(code, servers, "" if servers else UNSUPPORTED.get(code, ""), tuple(ordered)))
    return made


def served_codes(root: Path = ROOT) -> Mapping[str, frozenset[RequestCode]]:
    """Return the codes that each kind of peer has a route for."""
    with tempfile.TemporaryDirectory() as folder:
        config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", listen_port=0, namesrv_addr="")
        store = StoreConfig(store_path_root_dir=Path(folder) / "store")
        # With controllers a broker serves requests that it does not serve without them.
        brokers = [Broker(one, store) for one in (config, replace(config, enable_controller_mode=True))]
        name_server = NameServer(NamesrvConfig(kv_config_path=Path(folder) / "kvConfig.json"))
        controller = Controller(
            ControllerConfig(
                controller_dleger_group="g",
                controller_dleger_peers="n0-127.0.0.1:9878",
                controller_dleger_self_id="n0",
                controller_store_path=Path(folder) / "controller",
            ),
            on_fatal=_ignore,
        )
        return {
            "broker": frozenset(route.code for broker in brokers for route in broker.routes.routes),
            "name server": frozenset(route.code for route in name_server.routes.routes),
            "controller": frozenset(route.code for route in controller.routes.routes),
            "client": frozenset(_codes_in_routes((root / "sprocket" / "client").rglob("*.py"))),
        }


def _ignore(error: Exception) -> None:
    """The servers of this page are never started."""


def _codes_in_routes(files: Iterable[Path]) -> set[RequestCode]:
    """Return the codes in functions that create a route: a client's routes depend on what it is opened for."""
    codes = set()
    for file in files:
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef) and any(_is_route(node) for node in ast.walk(function)):
                names = {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
                codes |= {RequestCode[name] for name in names & RequestCode.__members__.keys()}
    return codes


def _is_route(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Route"


def marked_tests(root: Path = ROOT) -> dict[RequestCode, list[MarkedTest]]:
    """Return the tests marked ``@pytest.mark.code(RequestCode.X)``, by code.  Raises KeyError for an unknown code."""
    found: dict[RequestCode, list[MarkedTest]] = {}
    for file in sorted((root / "tests").rglob("test_*.py")):
        path, text = file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")
        if "mark.code(" not in text:  # most have none, and a tree takes long
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for code in _codes_of_marks(function.decorator_list):
                    found.setdefault(code, []).append(MarkedTest(path, function.name))
    return found


def _codes_of_marks(decorators: Iterable[ast.expr]) -> Iterator[RequestCode]:
    for decorator in decorators:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.code":
            for argument in decorator.args:
                yield RequestCode[ast.unparse(argument).removeprefix("RequestCode.")]


def _distance(path: str, folders: list[str]) -> int:
    folder = path.split("/")[1]
    return folders.index(folder) if folder in folders else len(folders)


def page(root: Path = ROOT) -> str:
    """Return the text of docs/compatibility.md."""
    table = rows(root)
    done = sum(bool(row.servers) for row in table)
    parts = [_HEAD, f"{done} of {len(table)} codes are served.\n\n"]
    parts += ["| Code | Name | 5.3.3 | 5.5.1 | Status | Served by | Tests |\n|---:|---|---|---|---|---|---|\n"]
    return "".join([*parts, *(_line(row) for row in table)])


def _line(row: Row) -> str:
    status = "done" if row.servers else f"not supported: {row.reason}"
    tests = [f"[{test.path.removeprefix('tests/')}](../{test.path}) `{test.name}`" for test in row.tests]
    cells = [
        str(int(row.code)), row.code.name, *_versions(row.code), status, ", ".join(row.servers), ", ".join(tests),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |\n"


def _versions(code: RequestCode) -> tuple[str, str]:
    """Return whether RocketMQ 5.3.3 and 5.5.1 have a code."""
    if code in _SINCE_5_5:
        return "–", "yes"
    return ("–", "–") if code in _NEITHER else ("yes", "yes")


if __name__ == "__main__":
    write(page())

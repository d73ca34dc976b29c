"""Runs scenarios of real gRPC clients against a proxy: Java, Python, Node, Go and Rust.

Clients come from Maven Central, PyPI, npm, the Go module proxy and crates.io, into `build/compat` (ignored by git).
"""

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.compat import maven
from tests.compat.java_client import Outcome

_COMPAT = Path(__file__).resolve().parents[1]
_SOURCES = _COMPAT / "grpc_clients"
_JAVA = _COMPAT / "java" / "grpc"
_BUILD_LIMIT_S = 400
_RUST_LIMIT_S = 900
_RUN_LIMIT_S = 270
PYTHON_CLIENT = "rocketmq-python-client==5.1.2"
NODE_CLIENT = "rocketmq-client-nodejs@1.0.8"

JAVA_SCENARIOS = (
    "normal-simple", "normal-push", "async-send", "fifo", "delay", "recall", "transaction", "orphan", "tag-filter",
    "sql-filter", "change-invisible", "dead-letter", "wrong-type", "renewal",
    "priority", "lite", "lite-exclusive",
)  # fmt: skip
PYTHON_SCENARIOS = ("normal", "tag", "delay", "fifo", "transaction", "push", "priority", "lite", "lite_simple")
NODE_SCENARIOS = ("normal", "tag", "fifo", "delay", "push")
GO_SCENARIOS = ("normal", "tag", "fifo", "delay", "priority", "lite")
RUST_SCENARIOS = ("normal", "tag", "fifo", "delay", "transaction")

_TYPES = {
    "fifo": "FIFO", "delay": "DELAY", "recall": "DELAY", "transaction": "TRANSACTION", "orphan": "TRANSACTION",
    "priority": "PRIORITY", "lite": "LITE", "lite_simple": "LITE", "lite-exclusive": "LITE",
}  # fmt: skip


class ClientMissingError(Exception):
    """A client could not be fetched, or its language is not here; the text says which."""


def type_of(scenario: str) -> str:
    """The message.type of a scenario's topic."""
    return _TYPES.get(scenario, "NORMAL")


def java_version() -> str:
    """The version of the Java client."""
    return _first(r"<client.version>([^<]+)<", _JAVA / "pom.xml")


def go_version() -> str:
    """The version of the Go client."""
    return _first(r"rocketmq-clients/golang/v5 (v\S+)", _SOURCES / "go" / "go.mod")


def _first(pattern: str, path: Path) -> str:
    found = re.search(pattern, path.read_text())
    assert found is not None, path
    return found.group(1)


def java_classpath() -> str:
    """Scenarios with RocketMQ's gRPC client for Java.  Raises maven.JavaMissingError."""
    target = maven.BUILD / "grpc-client"
    maven._build(_JAVA / "pom.xml", target, [_JAVA / "pom.xml", *sorted((_JAVA / "src").rglob("*.java"))])
    return f"{target / 'classes'}:{target / 'lib'}/*"


def run_java(
    endpoints: str,
    run: str,
    scenarios: Sequence[str],
    home: Path,
    *,
    tls: bool,
    account: tuple[str, str] | None = None,
) -> dict[str, Outcome]:
    """Raises maven.JavaMissingError."""
    command = [*maven.short_java(), "-Xmx256m", f"-Duser.home={home}"]
    if account is not None:
        command += [f"-Dcompat.accessKey={account[0]}", f"-Dcompat.secretKey={account[1]}"]
    command += ["-cp", java_classpath(), "compat.grpc.Main"]
    return _run([*command, endpoints, str(tls).lower(), run, *scenarios], home)


def run_python(
    endpoints: str, run: str, scenarios: Sequence[str], home: Path, account: tuple[str, str] = ("", "")
) -> dict[str, Outcome]:
    """Raises ClientMissingError."""
    program = _SOURCES / "python_client.py"
    return _run([str(python_environment()), str(program), endpoints, *account, run, *scenarios], home)


def python_environment() -> Path:
    """Return the Python of an environment with RocketMQ's client.  Raises ClientMissingError."""
    folder = maven.BUILD / "grpc-python"

    def build() -> None:
        _called([sys.executable, "-m", "venv", str(folder / "venv")], folder)
        _called([str(folder / "venv" / "bin" / "pip"), "install", "--quiet", PYTHON_CLIENT], folder)

    _built(folder, PYTHON_CLIENT, build)
    return folder / "venv" / "bin" / "python"


def run_node(endpoints: str, run: str, scenarios: Sequence[str], home: Path) -> dict[str, Outcome]:
    """Raises ClientMissingError."""
    folder = maven.BUILD / "grpc-node"

    def build() -> None:
        _called([_tool("npm"), "init", "-y"], folder)
        _called([_tool("npm"), "install", "--no-audit", "--no-fund", NODE_CLIENT], folder)

    _built(folder, NODE_CLIENT, build)
    program = _SOURCES / "node_client.js"
    return _run([_tool("node"), str(program), endpoints, "", "", run, *scenarios], home, cwd=folder)


def run_go(endpoints: str, run: str, scenarios: Sequence[str], home: Path) -> dict[str, Outcome]:
    """Raises ClientMissingError."""
    program = _go_program(_SOURCES / "go", maven.BUILD / "grpc-go")
    return _run([str(program), endpoints, "", "", run, *scenarios], home)


def run_rust(endpoints: str, run: str, scenarios: Sequence[str], home: Path) -> dict[str, Outcome]:
    """Raises ClientMissingError."""
    sources, folder = _SOURCES / "rust", maven.BUILD / "grpc-rust"
    files = [sources / "Cargo.toml", sources / "src" / "main.rs"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

    def build() -> None:
        shutil.copytree(sources, folder / "sources", dirs_exist_ok=True)  # cargo writes beside them
        command = [_tool("cargo"), "build", "--quiet", "--target-dir", str(folder / "target")]
        _called(command, folder / "sources", _RUST_LIMIT_S)

    _built(folder, digest, build)
    return _run([str(folder / "target" / "debug" / "compat-client"), endpoints, run, *scenarios], home)


def rust_version() -> str:
    """The version of the Rust client."""
    return _first(r'rocketmq = "=([^"]+)"', _SOURCES / "rust" / "Cargo.toml")


def run_remoting_go(address: str, topic: str, count: int, home: Path) -> dict[str, Outcome]:
    """Let the Go client of RocketMQ 4 send and consume at a remoting port.  Raises ClientMissingError."""
    program = _go_program(_COMPAT / "remoting_clients" / "go", maven.BUILD / "remoting-go")
    return _run([str(program), address, topic, str(count)], home)


def _go_program(sources: Path, folder: Path) -> Path:
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources.iterdir()))).hexdigest()

    def build() -> None:
        _called([_tool("go"), "mod", "download"], sources)
        _called([_tool("go"), "build", "-o", str(folder / "client"), "."], sources)

    _built(folder, digest, build)
    return folder / "client"


def _built(folder: Path, version: str, build: Callable[[], None]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = folder / "stamp"
        if not stamp.exists() or stamp.read_text() != version:
            build()
            stamp.write_text(version)


def _called(command: list[str], folder: Path, limit_s: int = _BUILD_LIMIT_S) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as late:
        raise ClientMissingError(f"{command[0]} was not done in {limit_s} s") from late
    if done.returncode:
        raise ClientMissingError(f"{' '.join(command)}: {done.stderr[-1000:]}")


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise ClientMissingError(f"{name} is not on PATH")
    return path


def _run(command: Sequence[str], home: Path, cwd: Path | None = None) -> dict[str, Outcome]:
    home.mkdir(parents=True, exist_ok=True)
    output = home / "scenarios.txt"
    with output.open("wb") as file:
        try:
            subprocess.run(
                command, cwd=cwd or home, stdout=file, stderr=subprocess.STDOUT, timeout=_RUN_LIMIT_S, check=False,
                env={"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "mq.consoleAppender.enabled": "false"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            file.write(f"\nnot done in {_RUN_LIMIT_S} s\n".encode())
    outcomes: dict[str, Outcome] = {}
    for line in output.read_text(errors="replace").splitlines():
        if line.startswith("RESULT\t"):
            _, name, verdict, millis, what = line.split("\t", 4)
            outcomes[name] = Outcome(verdict == "PASS", int(millis), what)
    return outcomes

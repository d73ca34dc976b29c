"""Redis, PostgreSQL and MariaDB as processes of a test, on Unix sockets in folders of their own, killed by id."""

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import asyncpg

from tests.debian_packages import PackageMissingError, unpacked

_LIMIT_S: Final = 120
# The server, and the libraries that it needs beside those of a Debian system without it.
_REDIS_PACKAGES: Final = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
_MARIADB_PACKAGES: Final = (
    "mariadb-server-core", "libaio1", "liburing2", "libsnappy1v5", "libpmem1", "libndctl6", "libdaxctl1", "libnuma1",
)  # fmt: skip


class DatabaseMissingError(Exception):
    """The server is not installed and could not be fetched; the text says what to install."""


class Redis:
    """Redis that writes each command to its disk before it answers."""

    def __init__(self) -> None:
        """Raises DatabaseMissingError."""
        self._program, self._environment = _redis_program()
        self._folder = Path(tempfile.mkdtemp(prefix="redis-"))
        self.url = f"unix://{self._folder}/redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Redis":
        return self

    def __exit__(self, *exception: object) -> None:
        self._end(signal.SIGTERM)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, over what it has on its disk; return when it answers."""
        options = {
            "port": "0",
            "unixsocket": f"{self._folder}/redis.sock",
            "dir": str(self._folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        with (self._folder / "log").open("ab") as into:
            self._process = subprocess.Popen(
                [self._program, *words], env=self._environment, stdout=into, stderr=into, stdin=subprocess.DEVNULL
            )
        _wait(self._is_ready)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(f"{self._folder}/redis.sock")
                connection.sendall(b"PING\r\n")
                return connection.recv(16) == b"+PONG\r\n"  # until its files are loaded, an error
            except OSError:
                return False

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_LIMIT_S)
            self._process = None


class Postgres:
    """PostgreSQL with one database, `postgres`.  It refuses to run as root, so root starts it as another user."""

    def __init__(self) -> None:
        """Raises DatabaseMissingError."""
        self._programs = _postgres_programs()
        self._user = _unprivileged()
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self.url = f"postgresql://postgres@/postgres?host={self._folder}"
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        words = ["-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        with self._run("initdb", *words) as process:
            output, _ = process.communicate(timeout=_LIMIT_S)
        if process.returncode != 0:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise RuntimeError(f"initdb failed: {output.decode()}")

    def __enter__(self) -> "Postgres":
        return self

    def __exit__(self, *exception: object) -> None:
        self._end(signal.SIGINT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, over what it has on its disk; return when it answers."""
        _wait(self._is_ready)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_LIMIT_S)
            self._process = None

    def _is_ready(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            # After a SIGKILL it does not start before the last session has ended, so this may happen several times.
            options = {"listen_addresses": "", "unix_socket_directories": str(self._folder), "shared_buffers": "16MB"}
            words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
            self._process = self._run("postgres", "-D", self._data, *words, output=subprocess.DEVNULL)
        return asyncio.run(_answers(self.url))

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def _run(self, program: str, *words: str, output: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        user = self._user
        return subprocess.Popen(
            [self._programs / program, *words],
            user=None if user is None else user.pw_uid,
            group=None if user is None else user.pw_gid,
            extra_groups=None if user is None else (),
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


class MariaDb:
    """MariaDB on a socket in a folder of its own.  It has no tables of accounts, so it asks nobody for a password."""

    def __init__(self) -> None:
        """Raises DatabaseMissingError."""
        self._program, self._environment, self._messages = _mariadb_program()
        self._folder = Path(tempfile.mkdtemp(prefix="mariadb-"))
        self.socket = self._folder / "socket"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "MariaDb":
        options = {
            "datadir": self._folder / "data", "socket": self.socket, "pid-file": self._folder / "pid",
            "lc-messages-dir": self._messages, "innodb-buffer-pool-size": "32M", "innodb-log-file-size": "16M",
            "user": "root" if os.geteuid() == 0 else "",
        }  # fmt: skip
        (self._folder / "data").mkdir()
        words = [f"--{name}={value}" for name, value in options.items() if value]
        with (self._folder / "log").open("ab") as into:
            self._process = subprocess.Popen(
                [self._program, "--no-defaults", "--skip-grant-tables", "--skip-networking", *words],
                env=self._environment, stdin=subprocess.DEVNULL, stdout=into, stderr=into,
            )  # fmt: skip
        _wait(self._is_ready)
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_LIMIT_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def create(self, database: str) -> None:
        """Create an empty database."""
        import pymysql

        with pymysql.connect(unix_socket=str(self.socket), user="root") as connection:
            connection.cursor().execute(f"CREATE DATABASE {database}")

    def url(self, database: str) -> str:
        return f"mysql://root@localhost/{database}?unix_socket={self.socket}"

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self.socket)) == 0


async def _answers(url: str) -> bool:
    try:
        connection = await asyncpg.connect(url, timeout=_LIMIT_S)
    except (OSError, asyncpg.PostgresError):
        return False
    await connection.close()
    return True


def _wait(is_ready: Callable[[], bool]) -> None:
    """Wait in a thread, where a coroutine may have a loop of its own."""

    def poll() -> None:
        until = time.monotonic() + _LIMIT_S
        while not is_ready():
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.05)

    with ThreadPoolExecutor(1) as thread:
        thread.submit(poll).result()


def _unprivileged() -> pwd.struct_passwd | None:
    """Return the user for a server that refuses root; None if this process is not root's."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise DatabaseMissingError("PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody")


def _postgres_programs() -> Path:
    """Return the folder of `postgres` and `initdb`.  Debian keeps them off PATH, in a folder for each version."""
    folders = [Path(path) for path in os.environ.get("PATH", "").split(os.pathsep)]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if all((folder / name).exists() for name in ("postgres", "initdb")):
            return folder
    raise DatabaseMissingError("needs PostgreSQL: apt-get install postgresql")


def _redis_program() -> tuple[str, dict[str, str]]:
    """Return redis-server and its environment; where it is not installed, Debian's packages unpacked in `build`."""
    found = shutil.which("redis-server")
    if found is not None:
        return found, dict(os.environ)
    try:
        tree = unpacked(_REDIS_PACKAGES)
    except PackageMissingError as missing:
        raise DatabaseMissingError(str(missing)) from None
    return str(tree / "usr/bin/redis-server"), _with_libraries(tree)


def _mariadb_program() -> tuple[str, dict[str, str], Path]:
    """Return the server, its environment, and the folder of its texts: as installed, or Debian's package unpacked."""
    found = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is not None:
        return found, dict(os.environ), Path("/usr/share/mysql")
    try:
        tree = unpacked(_MARIADB_PACKAGES)
    except PackageMissingError as missing:
        raise DatabaseMissingError(str(missing)) from None
    return str(tree / "usr/sbin/mariadbd"), _with_libraries(tree), tree / "usr/share/mysql"


def _with_libraries(tree: Path) -> dict[str, str]:
    """Return the environment of a program in `tree`, whose libraries are there."""
    libraries = {str(path.parent) for path in tree.rglob("*.so.*")}
    return os.environ | {"LD_LIBRARY_PATH": ":".join(sorted(libraries))}

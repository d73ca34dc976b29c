"""Hosts on a switch, each a network namespace: a packet between two of them can be lost in one direction or both.

Run inside ``unshare -n``, as root.  The program itself is a host that reaches all others, whatever is cut.  A cut gives
a host a wrong hardware address for another one: its packets go nowhere, and nobody is told.
"""

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

# Exit status of a program that may not make namespaces.
SKIPPED: Final = 77
_NETWORK: Final = "10.77.0"
_NOBODY: Final = "02:00:00:00:ff:ff"
_LIMIT_S: Final = 10.0


class NoNamespaces(Exception):
    """This process may not make network namespaces; the text says what was refused."""


class Host:
    """One host: `ip` is its address; `command` runs a program on it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ip = f"{_NETWORK}.{number}"
        self.mac = f"02:00:00:00:00:{number:02x}"
        # Holds the namespace, so that connections outlive the programs as they do on a machine.
        self.holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        self._await_namespace()
        ours, theirs, pid = f"h{number}", f"p{number}", str(self.holder.pid)
        run_ip("link", "add", ours, "type", "veth", "peer", "name", theirs)
        run_ip("link", "set", ours, "master", "br0", "up")
        run_ip("link", "set", theirs, "netns", pid)
        for arguments in (
            ("link", "set", "lo", "up"),
            ("link", "set", theirs, "address", self.mac),
            ("addr", "add", f"{self.ip}/24", "dev", theirs),
            ("link", "set", theirs, "up"),
        ):
            self.ip_command(*arguments)

    def _await_namespace(self) -> None:
        own, deadline = Path("/proc/self/ns/net").readlink(), time.monotonic() + _LIMIT_S
        while True:
            try:
                if Path(f"/proc/{self.holder.pid}/ns/net").readlink() != own:
                    return
            except OSError:
                pass
            if self.holder.poll() is not None or time.monotonic() > deadline:
                raise NoNamespaces("unshare -n")
            time.sleep(0.01)

    def command(self, program: Sequence[str]) -> list[str]:
        """Return the command that runs `program` here; its process id is that of the program."""
        return ["nsenter", "-t", str(self.holder.pid), "-n", *program]

    def ip_command(self, *arguments: str) -> None:
        """Run ``ip`` here.  Raises NoNamespaces."""
        _run(*self.command(["ip", *arguments]))


class Lan:
    """The switch and its hosts; all end with this context."""

    def __init__(self) -> None:
        self.own_ip = f"{_NETWORK}.1"
        self.hosts: list[Host] = []
        self._cuts: set[tuple[int, int]] = set()

    def __enter__(self) -> Self:
        run_ip("link", "set", "lo", "up")
        run_ip("link", "add", "br0", "type", "bridge")
        run_ip("addr", "add", f"{self.own_ip}/24", "dev", "br0")
        run_ip("link", "set", "br0", "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in self.hosts:
            host.holder.kill()
            host.holder.wait()

    def add(self) -> Host:
        """Return a new host that reaches all others.  Raises NoNamespaces."""
        host = Host(10 + len(self.hosts))
        for other in self.hosts:
            self._know(host, other, other.mac)
            self._know(other, host, host.mac)
        self.hosts.append(host)
        return host

    def cut(self, source: Host, target: Host) -> None:
        """Lose what `source` sends to `target`, until `heal`."""
        if (source.number, target.number) not in self._cuts and source is not target:
            self._cuts.add((source.number, target.number))
            self._know(source, target, _NOBODY)

    def part(self, some: Sequence[Host], others: Sequence[Host]) -> None:
        """Lose all packets between two sets of hosts."""
        for one in some:
            for other in others:
                self.cut(one, other)
                self.cut(other, one)

    def heal(self) -> None:
        """End all cuts."""
        by_number = {host.number: host for host in self.hosts}
        for source, target in self._cuts:
            self._know(by_number[source], by_number[target], by_number[target].mac)
        self._cuts.clear()

    @staticmethod
    def _know(host: Host, other: Host, mac: str) -> None:
        host.ip_command("neigh", "replace", other.ip, "lladdr", mac, "dev", f"p{host.number}", "nud", "permanent")


def run_ip(*arguments: str) -> None:
    """Run ``ip`` in the namespace of this program.  Raises NoNamespaces."""
    _run("ip", *arguments)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        detail = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise NoNamespaces(f"{' '.join(command)}: {detail}") from None

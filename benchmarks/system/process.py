"""A process of a benchmark: what it has used, from /proc, and its end by SIGTERM."""

import os
import platform
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Memory:
    """Resident bytes: all, and those that are not pages of a file (a mapped log counts in the first only)."""

    resident_bytes: int
    anonymous_bytes: int


def leave_on_sigterm() -> None:
    """Let SIGTERM end this process as `sys.exit` does, so that it stops its servers first.

    Only the first one counts.  `timeout` signals the whole process group, and a parent that ends signals its child once
    more: a second exit would interrupt the stopping.
    """
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def cpu_s(pid: int) -> float:
    """Processor seconds of all threads so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def cpu_with_children_s(pid: int) -> float:
    """Processor seconds so far of a process, of its children, and of those that have ended."""
    with suppress(FileNotFoundError):  # it ended meanwhile
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = " ".join(path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")).split()
        return sum(map(int, fields[11:15])) / _TICKS_PER_S + sum(cpu_with_children_s(int(child)) for child in children)
    return 0.0


def machine_busy_s() -> float:
    """Processor seconds of the whole machine so far, what a hypervisor took away included."""
    user, nice, system, _, _, irq, softirq, steal = map(int, _lines("/proc/stat")[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def memory(pid: int) -> Memory:
    """Resident memory now."""
    found = _sizes_bytes(f"/proc/{pid}/status")
    return Memory(found["VmRSS"], found["RssAnon"])


def free_bytes() -> int:
    """Memory of the machine that nothing uses, not even the page cache."""
    return _sizes_bytes("/proc/meminfo")["MemFree"]


def machine() -> dict[str, str]:
    """Processor, count, memory, kernel, interpreter: what a table of numbers is worth nothing without."""
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "processor": models[0] if models else os.uname().machine,
        "processors": str(os.cpu_count()),
        "memory_gib": f"{_sizes_bytes('/proc/meminfo').get('MemTotal', 0) / 1024**3:.0f}",
        "kernel": os.uname().release,
        "python": platform.python_version(),
        "load_before": f"{os.getloadavg()[0]:.1f}",
    }


def _sizes_bytes(path: str) -> dict[str, int]:
    """The sizes in a file of /proc whose lines are like `VmRSS:   123 kB`, by name."""
    lines = (line.replace(":", " ", 1).split() for line in _lines(path))
    return {fields[0]: int(fields[1]) * 1024 for fields in lines if len(fields) == 3 and fields[2] == "kB"}


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()

"""What a process has used, from /proc: processor time and resident memory."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Memory:
    """Resident bytes: all, and those that are not pages of a file (a mapped log counts in the first only)."""

    resident_bytes: int
    anonymous_bytes: int


def cpu_s(pid: int) -> float:
    """Processor seconds of all threads so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def machine_busy_s() -> float:
    """Processor seconds of the whole machine so far, what a hypervisor took away included."""
    user, nice, system, _, _, irq, softirq, steal = map(int, _lines("/proc/stat")[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS_PER_S


def memory(pid: int) -> Memory:
    """Resident memory now."""
    kib = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "RssAnon"):
            kib[name] = int(value.split()[0])
    return Memory(kib["VmRSS"] * 1024, kib["RssAnon"] * 1024)


def machine() -> dict[str, str]:
    """Processor, count, memory, kernel, interpreter: what a table of numbers is worth nothing without."""
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    total = next((line.split()[1] for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), "0")
    return {
        "processor": models[0] if models else os.uname().machine,
        "processors": str(os.cpu_count()),
        "memory_gib": f"{int(total) / 1024**2:.0f}",
        "kernel": os.uname().release,
        "python": platform.python_version(),
        "load_before": f"{os.getloadavg()[0]:.1f}",
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()

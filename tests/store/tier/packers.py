"""Processes that pack segments."""

from pathlib import Path


def packers(parent: int) -> list[int]:
    """Return the numbers of those that the process `parent` has started, and that have not ended."""
    children = [pid for thread in Path(f"/proc/{parent}/task").iterdir() for pid in _text(thread / "children").split()]
    return [int(pid) for pid in children if "store.tier.segment_packer" in _text(Path("/proc") / pid / "cmdline")]


def _text(path: Path) -> str:
    """Return the text of a file, which is empty, or gone, if its process or thread has ended."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return ""

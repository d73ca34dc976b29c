"""The project's own files keep the rules; what is allowed to break one stands in `allowed.py`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.allowed import ALLOWED
from tests.tidy.rules import (
    Finding,
    forbidden_names,
    long_file,
    long_functions,
    machine_paths,
    seam_uses,
)

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("sprocket", "docs", "namesrv", "broker", "proxy", "store", "ha", "acl", "spark")
# Written by a program, not by hand.
GENERATED_SUFFIX = "_pb2.py"
# Programs that use the product: they own their clock and files, the other rules hold.
PROGRAMS = ("benchmarks", "sprocket/demo")
TEXT_SUFFIXES = frozenset({".py", ".md", ".cfg", ".toml", ".conf", ".properties", ".lock", ".sh", ".java", ".xml", ""})
SKIPPED_FOLDERS = frozenset({".git", "__pycache__", "build", "dist", "target"})


def sources(folders: tuple[str, ...]) -> list[str]:
    files = (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")))
    return [path.relative_to(ROOT).as_posix() for path in files if not path.name.endswith(GENERATED_SUFFIX)]


def project_texts() -> Iterator[Path]:
    """Every text file that belongs to the project; hidden folders of tools are not followed."""
    pending = [ROOT]
    while pending:
        for path in sorted(pending.pop().iterdir()):
            if path.is_dir():
                tool_folder = path.name.startswith(".") and path.name != ".ci"
                if not tool_folder and path.name not in SKIPPED_FOLDERS and not path.name.endswith(".egg-info"):
                    pending.append(path)
            elif path.suffix in TEXT_SUFFIXES and path.name != ".git":
                yield path


def findings_of(name: str) -> list[Finding]:
    """What the rules find in one Python file of the product or of a program."""
    source = (ROOT / name).read_text(encoding="utf-8")
    module = Path(name).stem
    found = [*long_file(source), *long_functions(source), *forbidden_names(module, source)]
    if not name.startswith(tuple(f"{program}/" for program in PROGRAMS)):
        found += seam_uses(source)
    return found


@pytest.mark.parametrize("name", sources((*PACKAGES, "benchmarks")))
def test_file_keeps_the_rules(name: str) -> None:
    broken = [str(finding) for finding in findings_of(name) if (name, finding.rule) not in ALLOWED]
    assert not broken, f"{name}\n  " + "\n  ".join(broken)


@pytest.mark.parametrize(("name", "rule"), sorted(ALLOWED), ids=str)
def test_allowance_is_still_needed(name: str, rule: str) -> None:
    assert (ROOT / name).is_file(), f"{name} is gone: remove its line from tests/tidy/allowed.py"
    found = findings_of(name) + list(machine_paths((ROOT / name).read_text(encoding="utf-8")))
    assert rule in {finding.rule for finding in found}, f"{name} no longer needs '{rule}': remove its line"


def test_no_machine_path_in_any_file() -> None:
    broken = []
    for path in project_texts():
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8", errors="replace")
        broken += [f"{name} {finding}" for finding in machine_paths(text) if (name, finding.rule) not in ALLOWED]
    assert not broken, "\n".join(broken)


def test_every_package_has_files() -> None:
    """Guards the test itself: a wrong root would find nothing and pass."""
    assert all(sources((package,)) for package in PACKAGES)

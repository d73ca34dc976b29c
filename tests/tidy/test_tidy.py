"""The project's own files keep the rules; what is allowed to break one stands in `allowed.py`."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sprocket.common.refusal_reasons import Reason
from tests.tidy.allowed import ALLOWED, LATE_ATTRIBUTES, MAX_PRIVATE_ACCESSES
from tests.tidy.late_attributes import Attributes, attributes, late_attributes
from tests.tidy.own_lines import OWN_LINES, SERVERS
from tests.tidy.rules import (
    Finding,
    forbidden_names,
    free_log_lines,
    long_file,
    long_functions,
    machine_paths,
    private_accesses,
    private_names,
    seam_uses,
    uncounted_refusals,
    unlimited_lines,
)

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "sprocket",
    "sprocket_cli",
    "docs",
    "namesrv",
    "controller",
    "broker",
    "proxy",
    "dashboard",
    "replicate",
    "store",
    "ha",
    "acl",
    "spark",
)
# Written by a program, not by hand.
GENERATED_SUFFIX = "_pb2.py"
# Programs that use the product: they own their clock and files, the other rules hold.
PROGRAMS = ("benchmarks", "examples/demo")
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


def named_reasons(owners: str, names: list[str]) -> set[str]:
    """Return every NAME of ``Reason.NAME`` in these files; `owners` are alternatives for Reason."""
    pattern = re.compile(rf"\b(?:{owners})\.([A-Z_0-9]+)\b")
    return set().union(*(pattern.findall((ROOT / name).read_text(encoding="utf-8")) for name in names))


def findings_of(name: str) -> list[Finding]:
    """What the rules find in one Python file of the product or of a program."""
    source = (ROOT / name).read_text(encoding="utf-8")
    module = Path(name).stem
    found = [*long_file(source), *long_functions(source), *forbidden_names(module, source), *free_log_lines(source)]
    if not name.startswith(tuple(f"{program}/" for program in PROGRAMS)):
        found += seam_uses(source)
    if name.startswith(("broker/", "namesrv/", "acl/", "sprocket/remoting/")):
        found += uncounted_refusals(source)
    return found


@cache
def product() -> tuple[dict[str, ast.Module], Attributes]:
    """Return every file of the product, parsed, and the attributes of its classes."""
    programs = tuple(f"{program}/" for program in PROGRAMS)
    names = [name for name in sources(PACKAGES) if not name.startswith(programs)]
    trees = {name: ast.parse((ROOT / name).read_text(encoding="utf-8")) for name in names}
    return trees, attributes(trees)


@cache
def set_late() -> set[str]:
    """Return the attributes that any file of the product sets on an object of another file."""
    trees, known = product()
    return {finding.what.rpartition(".")[2] for name in trees for finding in late_attributes(name, trees[name], known)}


@pytest.mark.parametrize("name", product()[0])
def test_nothing_is_attached_to_an_object_of_another_file(name: str) -> None:
    trees, known = product()
    found = late_attributes(name, trees[name], known)
    broken = [str(finding) for finding in found if finding.what.rpartition(".")[2] not in LATE_ATTRIBUTES]
    assert not broken, (
        f"{name}\n  " + "\n  ".join(broken) + "\nGive it to the constructor, or add a method that says what changes"
    )


@pytest.mark.parametrize("attribute", sorted(LATE_ATTRIBUTES))
def test_late_attribute_is_still_set(attribute: str) -> None:
    assert attribute in set_late(), f"nobody sets '{attribute}' late: remove its line from tests/tidy/allowed.py"


@pytest.mark.parametrize("name", sources((*PACKAGES, "benchmarks")))
def test_file_keeps_the_rules(name: str) -> None:
    broken = [str(finding) for finding in findings_of(name) if (name, finding.rule) not in ALLOWED]
    assert not broken, f"{name}\n  " + "\n  ".join(broken)


@pytest.mark.parametrize(("name", "rule"), sorted(ALLOWED), ids=str)
def test_allowance_is_still_needed(name: str, rule: str) -> None:
    assert (ROOT / name).is_file(), f"{name} is gone: remove its line from tests/tidy/allowed.py"
    found = findings_of(name) + list(machine_paths((ROOT / name).read_text(encoding="utf-8")))
    assert rule in {finding.rule for finding in found}, f"{name} no longer needs '{rule}': remove its line"


def test_every_log_line_that_a_peer_can_cause_has_a_limit() -> None:
    found = [(name, one) for name in sources(SERVERS) for one in unlimited_lines((ROOT / name).read_text("utf-8"))]
    broken = [f"{name} {one}" for name, one in found if one.what not in OWN_LINES]
    assert not broken, "write it with peer_lines, or say in own_lines.py why no peer can cause it:\n  " + "\n  ".join(
        broken
    )
    unused = OWN_LINES - {one.what for _, one in found}
    assert not unused, "nothing writes these lines: remove them from tests/tidy/own_lines.py"


def test_no_machine_path_in_any_file() -> None:
    broken = []
    for path in project_texts():
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8", errors="replace")
        broken += [f"{name} {finding}" for finding in machine_paths(text) if (name, finding.rule) not in ALLOWED]
    assert not broken, "\n".join(broken)


def test_every_reason_of_a_refusal_is_used_and_tested() -> None:
    own = ROOT / "sprocket/common/refusal_reasons.py"
    # The store names its causes like the reasons (`store.retention.back_pressure.Cause`).
    used = named_reasons("Reason|Cause", [name for name in sources(PACKAGES) if ROOT / name != own])
    tested = named_reasons("Reason", sources(("tests",)))
    names = {reason.name for reason in Reason}
    assert names - used == set(), "nothing refuses for these"
    assert names - tested == set(), "no test refuses for these"


def test_tests_reach_into_the_product_less_and_less() -> None:
    product = set().union(*(private_names((ROOT / name).read_text("utf-8")) for name in sources(PACKAGES)))
    found = [
        f"{name} {finding}"
        for name in sources(("tests",))
        for finding in private_accesses((ROOT / name).read_text("utf-8"), product)
    ]
    assert len(found) <= MAX_PRIVATE_ACCESSES, "use a public interface:\n  " + "\n  ".join(found)


def test_every_package_has_files() -> None:
    """Guards the test itself: a wrong root would find nothing and pass."""
    assert all(sources((package,)) for package in PACKAGES)

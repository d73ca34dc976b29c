"""Every link, anchor, path and name of code in README.md and docs/ leads somewhere, and the site has every page."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests.docs.markdown import anchors_of, links_of, members_of, names_in_files_of, paths_of, private_names_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
SITE = ROOT / "mkdocs.yml"


def broken(page: Path) -> list[str]:
    """Return the links of `page` that lead nowhere."""
    found = []
    for link in links_of(page.read_text(encoding="utf-8")):
        place, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (page.parent / place).resolve() if place else page
        if not target.exists():
            found.append(f"{link}: there is no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors_of(target.read_text(encoding="utf-8")):
            found.append(f"{link}: {target.name} has no such heading")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


@pytest.fixture(scope="module")
def code_files() -> list[str]:
    """Paths of the code files of the project, each with a slash before it."""
    names = (path.relative_to(ROOT).as_posix() for part in ROOT.iterdir() if _is_ours(part) for path in part.rglob("*"))
    return [f"/{name}" for name in names]


def _is_ours(part: Path) -> bool:
    return part.is_dir() and part.name not in ("build", "dist") and not part.name.startswith(".")


# The list of tests by module is that of the day that it names.
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "tests-by-module.md"],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_named_code_files_exist(page: Path, code_files: list[str]) -> None:
    named = paths_of(page.read_text(encoding="utf-8"))
    assert [path for path in named if not any(name.endswith(f"/{path}") for name in code_files)] == []


@pytest.fixture(scope="module")
def words(code_files: list[str]) -> dict[str, set[str]]:
    """The words of each file of Python or Cython, by its path."""
    names = [name for name in code_files if name.endswith((".py", ".pyx", ".pxd"))]
    return {name: set(re.findall(r"\w+", (ROOT / name[1:]).read_text(encoding="utf-8"))) for name in names}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_names_of_code_exist(page: Path, words: dict[str, set[str]]) -> None:
    assert missing_names(page.read_text(encoding="utf-8"), words) == []


def missing_names(text: str, words: dict[str, set[str]]) -> list[str]:
    """Return what `text` says of the code that the code does not have."""
    found = []
    for path, name in names_in_files_of(text):
        known = [of_file for file, of_file in words.items() if file.endswith(f"/{path}")]
        if known and not any(set(name.split(".")) <= of_file for of_file in known):
            found.append(f"{path} {name}")
    for owner, member in members_of(text):
        # A class that is not ours may be RocketMQ's.
        files = [of_file for of_file in words.values() if owner in of_file and member in of_file]
        if not files and any(owner in of_file for of_file in words.values()):
            found.append(f"{owner}.{member}")
    return found + [name for name in private_names_of(text) if not any(name in of_file for of_file in words.values())]


def test_a_missing_name_is_found() -> None:
    words = {"/a/b.py": {"Owner", "has", "_hidden"}}
    text = "`a/b.py` `Owner`, `has`; `a/b.py` `lost`; `Owner.has`, `Owner.lost()`, `Alien.x`, `_hidden`, `_lost`"
    assert missing_names(text, words) == ["a/b.py lost", "Owner.lost", "_lost"]


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n[a](#one-two) [b](#three) [c](nowhere.md) `[d](code.md)` [e](https://example.org)\n")
    assert [text.partition(":")[0] for text in broken(page)] == ["#three", "nowhere.md"]


def test_the_site_has_every_page_once() -> None:
    content = yaml.safe_load(SITE.read_text(encoding="utf-8"))
    listed = [page for part in content["nav"] for pages in part.values() for entry in pages for page in entry.values()]
    docs = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert sorted(listed) == sorted(page for page in docs if not page.startswith("decisions/0"))


@pytest.mark.slow
def test_the_site_builds(tmp_path: Path) -> None:
    for package in ("mkdocs", "material", "mkdocstrings"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install '.[site]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    reference = (tmp_path / "api" / "index.html").read_text(encoding="utf-8")
    for name in ("sprocket.Producer", "sprocket.Consumer", "sprocket.Message", "sprocket.testing.Broker"):
        assert f'id="{name}"' in reference, name

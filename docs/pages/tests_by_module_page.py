"""Writes docs/tests-by-module.md: which test files import which module of the product, found without running them.

Run as ``python -m docs.pages.tests_by_module_page <file> <date of today>``.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from docs.pages.command import write

ROOT: Final = Path(__file__).resolve().parents[2]
_NO_PRODUCT: Final = {"tests", "docs", "benchmarks", "examples", "notebooks", "build", "dist", "conf"}
_MOST_TESTS: Final = 5
_HEAD: Final = """\
# Tests by module

For contributors: which tests to run after a change of a module. Written on {date} by
`python -m docs.pages.tests_by_module_page docs/tests-by-module.md {date}`, which reads imports and runs nothing.

A test is listed if its file, a file of `tests/` that it imports, or a `conftest.py` of its folders imports the module.
First come tests of the module's name, then those of its folder, then those that import the least. "Through" names the
nearest module that imports this one and has tests. Paths of tests begin in `tests/`.
"""

Imports = Mapping[str, frozenset[str]]


def module_files(root: Path) -> dict[str, Path]:
    """Return the Python files of `root` by the name of their module; a package's is that of its `__init__`."""
    folders = [part for part in sorted(root.iterdir()) if part.is_dir() and part.name.isidentifier()]
    files = [file for part in folders if part.name not in _NO_PRODUCT - {"tests"} for file in part.rglob("*.py")]
    names = {file: ".".join(file.relative_to(root).with_suffix("").parts) for file in sorted(files)}
    return {name.removesuffix(".__init__"): file for file, name in names.items()}


def imports_of(text: str, modules: Iterable[str]) -> frozenset[str]:
    """Return those of `modules` that a file with this text imports, or names in a text: so commands name theirs."""
    known = frozenset(modules)
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.partition(":")[0])
    return known & found


def tests_of(imports: Imports) -> dict[str, list[str]]:
    """Return the test modules that import each module of the product, the closest first."""
    direct: dict[str, set[str]] = defaultdict(set)
    reached = {test: _reached(test, imports) for test in imports if _is_test(test)}
    for test, modules in reached.items():
        for module in modules:
            direct[module].add(test)

    def distance(test: str, module: str) -> tuple[bool, bool, int, str]:
        folder, _, name = module.rpartition(".")
        is_named = test.rpartition(".")[2] == f"test_{name}"
        return not is_named, not test.startswith(f"tests.{folder}."), len(reached[test]), test

    return {module: sorted(tests, key=lambda test: distance(test, module)) for module, tests in direct.items()}


def way_to(module: str, tests: Mapping[str, list[str]], imports: Imports) -> str | None:
    """Return the nearest module with tests that imports `module`, the module itself if it has some."""
    seen, level = {module}, [module]
    while level:
        tested = [one for one in level if one in tests]
        if tested:
            return tested[0]
        level = sorted({one for one, of in imports.items() if not seen.isdisjoint(of) and not _is_ours(one)} - seen)
        seen.update(level)
    return None


def page(root: Path, date: str) -> str:
    """Return the text of docs/tests-by-module.md."""
    files = module_files(root)
    imports = {name: imports_of(file.read_text(encoding="utf-8"), files) for name, file in files.items()}
    tests = tests_of(imports)
    lines = [_HEAD.format(date=date)]
    part = ""
    for module in (name for name, file in files.items() if not _is_ours(name) and not file.name.startswith("__")):
        if module.partition(".")[0] != part:
            part = module.partition(".")[0]
            lines.append(f"\n## {part}\n\n| Module | Tests |\n|---|---|\n")
        lines.append(f"| `{_path(module)}` | {_cell(module, way_to(module, tests, imports), tests)} |\n")
    return "".join(lines)


def _cell(module: str, way: str | None, tests: Mapping[str, list[str]]) -> str:
    if way is None:
        return "named at run time only"
    names = [f"`{_path(test).removeprefix('tests/')}`" for test in tests[way][:_MOST_TESTS]]
    left = len(tests[way]) - len(names)
    listed = ", ".join(names) + (f" and {left} more" if left else "")
    return listed if way == module else f"through `{_path(way)}`: {listed}"


def _reached(test: str, imports: Imports) -> frozenset[str]:
    """Return the modules of the product that a test, its helpers and the fixtures of its folders import."""
    parts = test.split(".")
    fixtures = {".".join((*parts[:count], "conftest")) for count in range(1, len(parts))} & imports.keys()
    seen, todo = {test, *fixtures}, [test, *fixtures]
    while todo:
        new = {one for one in imports[todo.pop()] if _is_ours(one) and not _is_test(one)} - seen
        seen |= new
        todo += new
    return frozenset(module for one in seen for module in imports[one] if not _is_ours(module))


def _path(module: str) -> str:
    return f"{module.replace('.', '/')}.py"


def _is_ours(module: str) -> bool:
    return module == "tests" or module.startswith("tests.")


def _is_test(module: str) -> bool:
    return _is_ours(module) and module.rpartition(".")[2].startswith("test_")


if __name__ == "__main__":
    write(page(ROOT, sys.argv[2]))

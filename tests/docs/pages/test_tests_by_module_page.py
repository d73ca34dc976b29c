"""docs/tests-by-module.md names the tests of a module by what they and their helpers import."""

from pathlib import Path

import pytest

from docs.pages.tests_by_module_page import page

FILES = {
    "store/log.py": "",
    "store/parts.py": "",
    "store/nobody.py": "",
    "broker/server.py": "def start():\n    from store import parts\n",
    "broker/__init__.py": "",
    "sprocket/commands.py": "",
    "sprocket/main.py": 'NAMES = {"run": "sprocket.commands:run"}',
    "tests/conftest.py": "",
    "tests/rig.py": "import broker.server\n",
    "tests/broker/conftest.py": "from sprocket.main import NAMES\n",
    "tests/broker/test_server.py": "from tests.rig import X\n",
    "tests/broker/test_all.py": "import broker.server\nimport store.log\n",
    "tests/store/test_log.py": "from store.log import Log\n",
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root: Path = tmp_path_factory.mktemp("tree")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    text = page(root, "2020-02-02")
    assert "2020-02-02" in text
    return dict(line.strip("|\n ").split(" | ") for line in text.splitlines() if line.startswith("| `"))


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("store/log.py", "`store/test_log.py`, `broker/test_all.py`"),
        ("broker/server.py", "`broker/test_server.py`, `broker/test_all.py`"),
        ("store/parts.py", "through `broker/server.py`: `broker/test_server.py`, `broker/test_all.py`"),
        ("sprocket/main.py", "`broker/test_server.py`, `broker/test_all.py`"),
        ("sprocket/commands.py", "through `sprocket/main.py`: `broker/test_server.py`, `broker/test_all.py`"),
        ("store/nobody.py", "named at run time only"),
    ],
)
def test_a_module_has_the_tests_that_import_it(rows: dict[str, str], module: str, tests: str) -> None:
    assert rows[f"`{module}`"] == tests


def test_each_module_has_one_row_and_tests_have_none(rows: dict[str, str]) -> None:
    assert {name.strip("`") for name in rows} == {name for name in FILES if name[:5] not in ("tests", "broke")} | {
        "broker/server.py"
    }

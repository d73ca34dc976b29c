"""Every notebook runs to its end, and its last cell asserts what it showed.  One kernel and one Spark for all."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
CELL_LIMIT_S = 300


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A kernel with a Spark session of its own; skipped where there is no Java."""
    from jupyter_client.manager import KernelManager

    from spark.runtime.java_home import find_java_home
    from sprocket.common.errors import ConfigError

    try:
        find_java_home()
    except ConfigError as error:
        pytest.skip(str(error))
    settings = {
        "MASTER": "local[2]",
        "IPYTHONDIR": str(tmp_path_factory.mktemp("ipython")),
        "TMPDIR": str(tmp_path_factory.mktemp("temporary")),
        "PYSPARK_SUBMIT_ARGS": "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell",
    }
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(FOLDER), env={**os.environ, **settings})
    try:
        yield manager
    finally:
        # Asked to end, it ends the broker and the Java that it started.
        manager.shutdown_kernel()


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_to_its_end(kernel: object, path: Path) -> None:
    book = nbformat.read(path, 4)
    nbclient.NotebookClient(book, km=kernel, timeout=CELL_LIMIT_S).execute()
    assert all(cell.execution_count for cell in book.cells if cell.cell_type == "code")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_plain(path: Path) -> None:
    book = nbformat.read(path, 4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code), "kept without outputs"
    assert "assert " in code[-1].source
    assert book.cells[0].source.startswith("# ")
    assert not re.search("/" + r"(?:work|root|home/\w+)" + "/", path.read_text())


def test_the_page_lists_every_notebook() -> None:
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 11
    assert [path.name for path in NOTEBOOKS if f"../notebooks/{path.name})" not in page] == []

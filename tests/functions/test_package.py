"""Packages of code: what is in them, and what is refused."""

import random
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from sprocket.common.errors import ConfigError
from sprocket.functions.package import MAX_PACKAGE_BYTES, digest, load_functions, pack, read_key
from tests.functions.modules import forgotten

CODE = """
from sprocket.functions import function
from functions_shop.prices import PRICE

@function(input="In", group="g1")
async def first(body, ctx):
    ctx.send("Out", PRICE)

again = first
"""
_ONE = """
from sprocket.functions import function
@function(input="In", group="{}")
async def a(body, ctx): ...
"""


@pytest.fixture(autouse=True)
def _modules() -> Iterator[None]:
    with forgotten():
        yield


def shop(directory: Path) -> Path:
    """A package of two modules, with files that are not to travel."""
    source = directory / "functions_shop"
    source.mkdir()
    (source / "__init__.py").write_text(CODE)
    (source / "prices.py").write_text("PRICE = b'7'\n")
    for left_out in (".secret", "__pycache__/prices.pyc"):
        (source / left_out).parent.mkdir(exist_ok=True)
        (source / left_out).write_text("x")
    return source


def test_a_directory_is_packed_without_hidden_files_and_equal_sources_are_equal_packages(tmp_path: Path) -> None:
    module, package = pack(shop(tmp_path))
    assert module == "functions_shop"
    with zipfile.ZipFile(BytesIO(package)) as found:
        assert found.namelist() == ["functions_shop/__init__.py", "functions_shop/prices.py"]
    (tmp_path / "other").mkdir()
    assert pack(shop(tmp_path / "other"))[1] == package
    (tmp_path / "functions_shop" / "prices.py").write_text("PRICE = b'8'\n")
    assert digest(pack(tmp_path / "functions_shop")[1]) != digest(package)


def test_a_package_is_imported_from_its_file_and_a_function_counts_once(tmp_path: Path) -> None:
    module, package = pack(shop(tmp_path))
    path = tmp_path / "code.zip"
    path.write_bytes(package)
    (found,) = load_functions(path, module)
    assert (found.name, found.group, list(found.inputs), found.changelog) == ("first", "g1", ["In"], "g1-changelog")


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("functions_a.py", "x = 1", "declares no function"),
        ("functions_b.py", "import nowhere_at_all", "functions_b cannot be imported: ModuleNotFoundError"),
        ("functions_c.py", CODE.partition("from functions_shop")[0] + "\n@function(input='In', group='g')\n"
         "async def a(body, ctx): ...\n@function(input='In', group='g')\nasync def b(body, ctx): ...", "groups"),
        ("functions_d.py", "def f(:", r'SyntaxError\n  File "functions_d.py", line 1\n'),
        ("functions_e.py", "raise SystemExit(0)", "functions_e cannot be imported: SystemExit"),
        ("functions_f.py", _ONE.format("g") + _ONE.format("h"), r"would not run functions_f\.a \(group g\): "),
        ("json.py", "x = 1", "has a module json"),
    ],
)  # fmt: skip
def test_a_module_without_usable_functions_is_refused(tmp_path: Path, name: str, code: str, message: str) -> None:
    (tmp_path / name).write_text(code)
    module, package = pack(tmp_path / name)
    path = tmp_path / "code.zip"
    path.write_bytes(package)
    with pytest.raises(ConfigError, match=message):
        load_functions(path, module)


def test_an_interrupt_of_the_import_ends_the_program(tmp_path: Path) -> None:
    source = tmp_path / "functions_g.py"
    source.write_text("raise SystemExit(130)")
    module, package = pack(source)
    path = tmp_path / "code.zip"
    path.write_bytes(package)
    with pytest.raises(SystemExit):
        load_functions(path, module)


def test_what_is_no_module_or_too_large_is_refused(tmp_path: Path) -> None:
    for name in ("two-words.py", "data.txt"):
        (tmp_path / name).write_text("")
        with pytest.raises(ConfigError, match="allowed is"):
            pack(tmp_path / name)
    (tmp_path / "plain").mkdir()
    with pytest.raises(ConfigError, match=r"no __init__\.py"):
        pack(tmp_path / "plain")
    source = shop(tmp_path)
    (source / "data.bin").write_bytes(random.Random(1).randbytes(MAX_PACKAGE_BYTES))
    with pytest.raises(ConfigError, match="leave data out"):
        pack(source)


def test_a_key_is_read_without_blanks_around_it_and_a_short_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("  0123456789abcdef\n")
    assert read_key(path) == b"0123456789abcdef"
    path.write_text("short")
    with pytest.raises(ConfigError, match="at least 16"):
        read_key(path)
    with pytest.raises(ConfigError, match="cannot read"):
        read_key(tmp_path / "none")

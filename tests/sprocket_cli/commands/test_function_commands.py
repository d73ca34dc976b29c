"""What `sprocket function` refuses before it asks a cluster; tests/functions has what it does there."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from sprocket_cli import exit_codes
from sprocket_cli.main import main

_CODE = "from sprocket.functions import function\n@function(input='In', group='g')\nasync def f(body, ctx): ...\n"
_NOWHERE = ("-n", "127.0.0.1:1")


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["function", *arguments, *_NOWHERE])
    assert done.exit_code == exit_codes.USAGE, done.output
    return done.output


def test_a_machine_says_whom_it_trusts(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef")
    for trust in ((), ("--trust-cluster", "--key", str(key))):
        assert "--key FILE or --trust-cluster" in refused("run", *trust)
    key.write_text("short")
    assert "at least 16 are needed" in refused("run", "--key", str(key))
    assert "needs the NAME of one deployment" in refused("run", "--trust-cluster", "--metrics-port", "9000")


@pytest.mark.parametrize(
    ("name", "code", "options", "message"),
    [
        ("functions_x.py", "x = 1", (), "declares no function"),
        ("functions_y.py", "1 / 0", (), "ZeroDivisionError"),
        ("two-words.py", "", (), "whose name is a name of Python"),
        ("json.py", "", (), "has a module json"),
        ("functions_z.py", "x = 1", ("--memory-mb", "-1"), "not in the range"),
        ("functions_w.py", _CODE, ("--memory-mb", "60"), "a process needs 128 before its own data"),
        ("nowhere.py", None, (), "does not exist"),
    ],
)
def test_code_that_cannot_run_is_not_deployed(
    tmp_path: Path, name: str, code: str | None, options: tuple[str, ...], message: str
) -> None:
    if code is not None:
        (tmp_path / name).write_text(code)
    assert message in refused("deploy", str(tmp_path / name), *options)


def test_a_name_is_one_that_can_be_a_directory(tmp_path: Path) -> None:
    source = tmp_path / "functions_named.py"
    source.write_text(_CODE)
    assert "up to 64 letters" in refused("deploy", str(source), "--name", "../other")

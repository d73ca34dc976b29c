"""systemd units and the Containerfile of conf/: their syntax, and that what they name exists."""

import re
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import click
import pytest

from sprocket.common.config.configuration import settings_of
from sprocket_cli.server.mqbroker import main as mqbroker
from sprocket_cli.server.mqcontroller import main as mqcontroller
from sprocket_cli.server.mqnamesrv import main as mqnamesrv
from sprocket_cli.server.mqproxy import main as mqproxy
from sprocket_cli.server.server_config import BROKER_CLASSES

ROOT = Path(__file__).resolve().parents[3]
UNITS = sorted((ROOT / "conf" / "systemd").glob("*.service"))
PROGRAMS = {"mqbroker": mqbroker, "mqcontroller": mqcontroller, "mqnamesrv": mqnamesrv, "mqproxy": mqproxy}
CONTAINERFILE = (ROOT / "conf" / "container" / "Containerfile").read_text()


def flags_of(command: click.Command) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts}


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_a_program_that_knows_its_flags(path: Path, tmp_path: Path) -> None:
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(path)
    program, *words = unit["Service"]["ExecStart"].removeprefix("/opt/sprocket/bin/").split()
    assert {word for word in words if word.startswith("-")} <= flags_of(PROGRAMS[program])
    tool = shutil.which("systemd-analyze")
    if tool is None:
        return
    # The program and the user of the unit are those of the machine that it is made for.
    copy = tmp_path / path.name
    text = path.read_text().replace("/opt/sprocket/bin/", "/usr/bin/env ")
    copy.write_text(re.sub(r"^(User|Group)=.*\n", "", text, flags=re.MULTILINE))
    done = subprocess.run([tool, "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False)
    assert path.name not in done.stderr, done.stderr


def test_every_server_has_a_unit() -> None:
    names = ("broker", "controller", "namesrv", "proxy")
    assert [path.stem for path in UNITS] == [f"sprocket-{name}" for name in names]


def test_the_broker_goes_on_when_memory_ends_for_its_packing_process() -> None:
    assert "\nOOMPolicy=continue\n" in (ROOT / "conf" / "systemd" / "sprocket-broker.service").read_text()


def test_the_containerfile_names_what_exists() -> None:
    setup = ConfigParser(interpolation=None)
    setup.read(ROOT / "setup.cfg")
    extras = re.findall(r"/source\[([a-z,]+)\]", CONTAINERFILE)
    assert extras and set(extras[0].split(",")) <= set(setup["options.extras_require"])
    assert 'CMD ["sprocket", "--help"]' in CONTAINERFILE
    example = re.search(r"sprocket (mqbroker .*)\n#(.*)", CONTAINERFILE)
    assert example is not None
    words = f"{example[1]} {example[2]}"
    assert {word for word in words.split() if re.match(r"--?[a-z]", word)} <= flags_of(mqbroker)
    keys = {setting.key for declaration in BROKER_CLASSES for setting in settings_of(declaration)}
    assert set(re.findall(r"--set (\w+)=", words)) <= keys
    ports = next(line for line in CONTAINERFILE.splitlines() if line.startswith("EXPOSE ")).split()[1:]
    assert {"9876", "10911", "10909", "10912"} <= set(ports)

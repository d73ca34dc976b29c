"""The table of extras says what `setup.cfg` says, and the public names of `sprocket` are complete."""

from configparser import ConfigParser
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import sprocket
from sprocket.common.extras import EXTRA_OF, missing_package

ROOT = Path(__file__).resolve().parents[2]
# Those of developers: no error of the product asks for them.
_OWN = {"dev", "demo", "fuzz", "site", "wheels"}


def extras() -> dict[str, set[str]]:
    """Return the packages that each extra names itself, in lower case."""
    file = ConfigParser()
    file.read(ROOT / "setup.cfg")
    found = {}
    for extra, lines in file["options.extras_require"].items():
        names = [line for line in lines.split("\n") if line and not line.startswith(("#", "sprocket-mq["))]
        found[extra] = {name.partition(">")[0].partition("[")[0].strip().lower() for name in names}
    return found


@pytest.mark.parametrize("package", sorted(EXTRA_OF))
def test_the_extra_brings_the_package(package: str) -> None:
    owners = {name.lower() for name in packages_distributions().get(package, ())}
    if not owners:
        pytest.skip(f"{package} is not installed here")
    assert owners & extras()[EXTRA_OF[package]]


def test_each_extra_is_named_in_the_table_and_in_the_readme() -> None:
    named = {name for name, packages in extras().items() if packages} - _OWN
    assert named <= set(EXTRA_OF.values())
    table = (ROOT / "README.md").read_text().partition("| Extra | Brings |")[2].partition("\n\n")[0]
    assert [name for name in named if f"`{name}`" not in table] == []


def test_the_client_needs_one_package() -> None:
    file = ConfigParser()
    file.read(ROOT / "setup.cfg")
    assert file["options"]["install_requires"].split() == ["msgspec>=0.19"]


def test_a_package_of_no_extra_is_not_explained() -> None:
    assert missing_package(ModuleNotFoundError("x", name="sprocket.nothing"), "it") is None


def test_every_public_name_is_listed_and_loads() -> None:
    assert set(sprocket.__all__) <= set(dir(sprocket))
    for name in sprocket.__all__:
        assert getattr(sprocket, name) is not None

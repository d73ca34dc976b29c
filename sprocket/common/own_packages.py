"""Check that Python imports our flat packages (`store`, `spark`) and not packages of the user with the same names.

The servers and Spark use flat package names.  A driver or a Spark worker imports them in the user's process, where
a directory of the user may come first on `sys.path`.  A command of a server finds it in PYTHONPATH.
"""

import sys
import warnings
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

from sprocket.common.errors import SprocketError
from sprocket.common.extras import missing_package

# `<root>/sprocket/common/own_packages.py`: our packages lie side by side in the root.
_ROOT = Path(__file__).parents[2]
# What the commands of servers import, and all flat packages of the wheel (`setup.cfg`).
SERVER_PACKAGES: Final = ("acl", "broker", "controller", "dashboard", "ha", "namesrv", "proxy", "replicate", "store")
OWN_PACKAGES: Final = (*SERVER_PACKAGES, "spark")


class PackageHidden(SprocketError, ImportError):
    """Another package hides one of ours; the message names its place and says what to do."""


def check_own_packages(*names: str, warns: bool = True) -> None:
    """Raise `PackageHidden` if Python would import, or has imported, a package of `names` from another place.

    With `warns`, a RuntimeWarning names each package that one of ours hides.
    """
    for name in names:
        place = _place_of(name)
        if place is not None and place != _ROOT / name:
            raise PackageHidden(
                f"cannot import Sprocket's package '{name}' from {_ROOT / name}: {place} hides it. "
                f"Rename your package, or remove its directory from PYTHONPATH, sys.path and --py-files.",
                name=name,
            )
        if warns:
            _warn_of_hidden(name)


def import_own(module: str, what: str) -> ModuleType:
    """Return a module of one of our flat packages; `what` is the public name that needs it.

    Raises PackageHidden, and ImportError with the extra to install if a package that it needs is missing.
    """
    check_own_packages(module.partition(".")[0])
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(missing_package(error, what) or str(error), name=error.name) from error


def _place_of(name: str) -> Path | None:
    """Return the directory of the package `name`, or the file of a plain module; None if there is neither."""
    module = sys.modules.get(name)
    return _origin(find_spec(name) if module is None else getattr(module, "__spec__", None))


@cache
def _warn_of_hidden(name: str) -> None:
    """Warn, once in a process, of another package `name` in a later directory of `sys.path`."""
    root = _ROOT.resolve()
    hidden = _origin(PathFinder.find_spec(name, [each for each in sys.path if Path(each).resolve() != root]))
    if hidden is not None:
        warnings.warn(
            f"Sprocket's package '{name}' hides {hidden}: `import {name}` gives {_ROOT / name}. "
            f"Rename your package, or install Sprocket in an environment of its own.",
            RuntimeWarning,
            stacklevel=3,
        )


def _origin(spec: ModuleSpec | None) -> Path | None:
    if spec is None or spec.origin is None:
        # A directory without __init__.py, such as a folder of data named `store`, hides no package.
        return None
    places = list(spec.submodule_search_locations or ()) or [spec.origin]
    return Path(places[0])

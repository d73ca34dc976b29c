"""Code packages: one zip file that Python imports from, its hash, and its signature."""

import hashlib
import importlib
import io
import signal
import sys
import traceback
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sprocket.common.errors import ConfigError
from sprocket.functions.declaration import Function, gathered

# A package travels in one message.
MAX_PACKAGE_BYTES: Final = 3 << 20
_MIN_KEY_BYTES: Final = 16
_INTERRUPTED: Final = 128 + signal.SIGINT  # the status with which Ctrl-C ends a program, whatever it imports
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the first moment of zip: equal sources give equal packages


def pack(source: Path) -> tuple[str, bytes]:
    """Return the name of the module in a file or directory, and its package.  Raises ConfigError."""
    if not source.exists():
        raise ConfigError(f"{source} does not exist")
    module = source.stem if source.is_file() else source.name
    if not module.isidentifier() or not (source.suffix == ".py" or source.is_dir()):
        raise ConfigError(f"{source}: allowed is a .py file or a directory, whose name is a name of Python")
    if source.is_dir() and not (source / "__init__.py").is_file():
        raise ConfigError(f"{source} has no __init__.py, so it is no package of Python")
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as package:
        for path in _files(source):
            entry = zipfile.ZipInfo(str(path.relative_to(source.parent)), _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            package.writestr(entry, path.read_bytes())
            if into.tell() > MAX_PACKAGE_BYTES:
                raise ConfigError(f"{source} has more than {MAX_PACKAGE_BYTES} bytes, compressed: leave data out of it")
    return module, into.getvalue()


def _files(source: Path) -> Iterator[Path]:
    """Yield the file itself, or all of a directory but hidden ones and bytecode, in order."""
    if source.is_file():
        yield source
        return
    for path in sorted(source.rglob("*")):
        parts = path.relative_to(source).parts
        if path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts):
            yield path


def digest(package: bytes) -> str:
    """Return the SHA-256 of a package, in hex."""
    return hashlib.sha256(package).hexdigest()


def is_package(path: Path, sha256: str) -> bool:
    """Return whether the file is there and holds the package with this hash."""
    try:
        return digest(path.read_bytes()) == sha256
    except FileNotFoundError:
        return False


def read_key(path: Path) -> bytes:
    """Return the key in a file, without blanks around it.  Raises ConfigError."""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"cannot read the key {path}: {error.strerror}") from None
    if len(key) < _MIN_KEY_BYTES:
        raise ConfigError(f"the key in {path} has {len(key)} bytes; at least {_MIN_KEY_BYTES} are needed")
    return key


def load_functions(package: Path, module: str) -> list[Function]:
    """Import `module` from a package, and return its functions.  Raises ConfigError."""
    if module in sys.modules:
        raise ConfigError(f"Sprocket or Python has a module {module}: rename the file or the directory")
    sys.path.insert(0, str(package))
    try:
        with gathered() as declared:
            names = vars(importlib.import_module(module)).values()
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code == _INTERRUPTED:
            raise
        raise ConfigError(f"{module} cannot be imported: {_place_of(error, package)}") from None
    functions = list({id(one): one for one in names if isinstance(one, Function)}.values())
    if lost := [one for one in declared if one not in functions]:
        words = ", ".join(f"{one.handler.__module__}.{one.name} (group {one.group})" for one in lost)
        raise ConfigError(
            f"{module} would not run {words}: another one has its name, or {module} does not import it; "
            "give each function a name of its own in this module"
        )
    if not functions:
        raise ConfigError(f"{module} declares no function: mark its handlers with @function(input=..., group=...)")
    groups = [one.group for one in functions]
    if twice := {group for group in groups if groups.count(group) > 1}:
        raise ConfigError(f"{module} has several functions of the groups {sorted(twice)}; each function has its own")
    return functions


def _place_of(error: BaseException, package: Path) -> str:
    """Return what an import raised, and the lines of the package that led to it."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(package))]
    lines = [type(error).__name__, "\n", *traceback.format_list(own), *traceback.format_exception_only(error)]
    return "".join(lines).replace(f"{package}/", "").rstrip()

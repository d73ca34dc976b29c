"""Choice between the compiled engine and pure Python, once per process.

SPROCKET_ENGINE names the engine: `native` is the compiled one, `python` the pure one.  With `auto`, the default, it is
the compiled one if it was built.  The modules of a package, and of those below it, come from one engine: if one is
missing, Python is used for all of the package.
"""

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

# Each is beside its twin in pure Python.
MODULES: Final = (
    "broker.ack.kernel_native", "broker.pop.kernel_native", "broker.pull.kernel_native",
    "broker.send.kernel_native", "broker.transaction.kernel_native",
    "ha.session_frames_native",
    "spark.decode.columns_native",
    "sprocket.client.pull.record_decoder_native", "sprocket.client.send.sends_native",
    "sprocket.grpc_wire.message_writer_native", "sprocket.grpc_wire.reader_native",
    "sprocket.remoting.flow.connection_native", "sprocket.remoting.frames_native",
    "sprocket.remoting.header_reader_native", "sprocket.remoting.read_frames_native",
    "sprocket.remoting.signatures_native",
    "store.dispatch.record_intake_native", "store.moves_native", "store.queue.record_filter_native",
    "store.scan.scan_native", "store.timer.timer_units_native",
)  # fmt: skip
# A module imports the package it is in, and a client must not import a store, nor a store a broker.
_BELOW: Final = {
    "sprocket": (), "store": ("sprocket",), "spark": ("sprocket", "store"), "ha": ("sprocket", "store"),
    "broker": ("sprocket", "store", "ha"),
}  # fmt: skip
VARIABLE: Final = "SPROCKET_ENGINE"
COST: Final = (
    "Everything works; sends and recovery take 2 to 4 times as long. Faster: install a C compiler, run `make engine`."
)
_ROOT: Final = Path(__file__).parents[2]


class EngineMissing(ImportError):
    """SPROCKET_ENGINE asks for an engine that is not there."""


class Engine(NamedTuple):
    """The engine in use, why it is in use, and its compiled modules by name; none with pure Python."""

    name: str
    reason: str
    modules: Mapping[str, ModuleType]


def choose(wanted: str, root: Path = _ROOT, names: Iterable[str] = MODULES) -> Engine:
    """Return the engine for a value of SPROCKET_ENGINE, with the modules in `names`; an empty value means `auto`.

    Raises EngineMissing for another value, or if the compiled engine is wanted and cannot be used.
    """
    wanted = wanted or "auto"
    if wanted not in ("auto", "native", "python"):
        raise EngineMissing(f"{VARIABLE} is {wanted!r}: set it to auto, native or python")
    if wanted == "python":
        return Engine("python", f"{VARIABLE} is python", {})
    try:
        modules = {name: import_module(name) for name in names}
    except ModuleNotFoundError:
        return _pure(wanted, "the compiled engine is not built")
    except ImportError as error:
        return _pure(wanted, f"the compiled engine cannot be loaded: {error}")
    sources = _digests_of_all(root)
    if any(sources[name] not in ("", module.SOURCES) for name, module in modules.items()):
        return _pure(wanted, "the compiled engine was built from other sources")
    return Engine("native", "the compiled engine was built", modules)


def digests(root: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the digest of the sources of each module below `root`; empty if there are none, as in a wheel."""
    shared, found = hashlib.sha256(), {}
    sources = {name: root.joinpath(*name.split(".")).with_suffix(".pyx") for name in names}
    engine, beside = root / "sprocket" / "engine", (source.with_suffix(".pxd") for source in sources.values())
    for path in sorted([*engine.glob("*/*.pxd"), *engine.glob("*/*.h"), *filter(Path.exists, beside)]):
        shared.update(path.read_bytes())
    for name, source in sources.items():
        whole = shared.copy()
        if source.exists():
            whole.update(source.read_bytes())
        found[name] = whole.hexdigest() if source.exists() else ""
    return found


@cache
def _digests_of_all(root: Path) -> dict[str, str]:
    return digests(root, MODULES)


def _pure(wanted: str, reason: str) -> Engine:
    if wanted == "native":
        raise EngineMissing(f"{VARIABLE} is native, but {reason}: install a C compiler and run `make engine`")
    return Engine("python", reason, {})


_WANTED: Final = os.environ.get(VARIABLE, "")


def _package(name: str) -> str:
    return name.partition(".")[0]


@cache
def engine_of(package: str) -> Engine:
    """Return the engine of a top-level package.  Raises EngineMissing as `choose`."""
    return choose(_WANTED, names=[name for name in MODULES if _package(name) in (package, *_BELOW[package])])


ENGINE: Final = engine_of("sprocket")


def native(module: str) -> ModuleType | None:
    """Return a module of the compiled engine, such as `store.moves_native`; None if pure Python is in use."""
    return engine_of(_package(module)).modules.get(module)


def main() -> int:
    """Print one line about the engine in use, for `make setup`."""
    engine = engine_of("broker")
    if engine.name == "native":
        print("Engine: native (compiled)")
    else:
        print(f"Engine: python, because {engine.reason}. {COST}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Build of the compiled engine; everything else is in setup.cfg.

The modules are optional: without a C compiler, or without Cython, the package installs and runs pure Python.
With SPROCKET_ENGINE=python nothing is compiled.
"""

import hashlib
import os
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("sprocket", "engine")
# Packages whose modules are beside their twins in pure Python.
PACKAGES = ("broker", "ha", "spark", "sprocket", "store")


def sources() -> list[Path]:
    """Return the sources of the compiled modules."""
    return sorted(path for package in PACKAGES for path in Path(package).glob("**/*_native.pyx"))


def shared() -> list[Path]:
    """Return what the sources share."""
    beside = (source.with_suffix(".pxd") for source in sources())
    return sorted([*FOLDER.glob("*/*.pxd"), *FOLDER.glob("*/*.h"), *filter(Path.exists, beside)])


def digest(source: Path) -> str:
    """Return what `sprocket.engine.choice.digests` returns for a module of the engine."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in [*shared(), source])).hexdigest()


def extensions() -> list[Extension]:
    """Return the compiled modules."""
    depends = [str(path) for path in shared()]
    return [
        Extension(
            ".".join(source.with_suffix("").parts),
            [str(source)],
            # With this file, because its macros are part of a module.
            depends=[*depends, "setup.py"],
            include_dirs=sorted({str(path.parent) for path in FOLDER.glob("*/*.h")}),
            define_macros=[("ENGINE_SOURCES", f'"{digest(source)}"')],
            extra_compile_args=["-O2", "-g0", "-fvisibility=hidden"],
            optional=True,
        )
        for source in sources()
    ]


os.chdir(Path(__file__).resolve().parent)
# Only Linux says on which processors a process may run.
processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
modules = [] if os.environ.get("SPROCKET_ENGINE") == "python" else extensions()
setup(ext_modules=modules, options={"build_ext": {"parallel": processors}})

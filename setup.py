"""Build of the compiled engine; everything else is in setup.cfg.

The modules are optional: without a C compiler, or without Cython, the package installs and runs pure Python.
With SPROCKET_ENGINE=python nothing is compiled.
"""

import hashlib
import os
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("sprocket", "engine")


def digest(name: str) -> str:
    """Return what `sprocket.engine.choice.digests` returns for a module of the engine."""
    source = FOLDER.joinpath(*name.split(".")).with_suffix(".pyx")
    paths = [*sorted([*FOLDER.glob("*/*.pxd"), *FOLDER.glob("*/*.h")]), source]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def extensions() -> list[Extension]:
    """Return the compiled modules."""
    shared = [str(path) for path in sorted(FOLDER.glob("*/*")) if path.suffix in (".pxd", ".h")]
    return [
        Extension(
            f"sprocket.engine.{source.parent.name}.{source.stem}",
            [str(source)],
            # With this file, because its macros are part of a module.
            depends=[*shared, "setup.py"],
            include_dirs=sorted({str(Path(path).parent) for path in shared}),
            define_macros=[("ENGINE_SOURCES", f'"{digest(f"{source.parent.name}.{source.stem}")}"')],
            extra_compile_args=["-O2", "-g0", "-fvisibility=hidden"],
            optional=True,
        )
        for source in sorted(FOLDER.glob("*/*.pyx"))
    ]


os.chdir(Path(__file__).resolve().parent)
modules = [] if os.environ.get("SPROCKET_ENGINE") == "python" else extensions()
setup(ext_modules=modules, options={"build_ext": {"parallel": len(os.sched_getaffinity(0))}})

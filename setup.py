"""Build of the compiled engine; everything else is in setup.cfg.

The modules are optional: without a C compiler, or without Cython, the package installs and runs pure Python.
"""

import hashlib
import os
from pathlib import Path

from setuptools import Extension, setup

FOLDER = Path("sprocket", "engine")
MODULES = (
    "client_sends", "framing", "header_reader", "moves", "pulls", "reads", "records", "scan", "sends",
)  # fmt: skip


def digest(name: str) -> str:
    """Return what `sprocket.engine.choice.digest` returns for a module of the engine."""
    paths = sorted([*FOLDER.glob("*.pxd"), *FOLDER.glob("*.h"), FOLDER / f"{name}.pyx"])
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def extensions() -> list[Extension]:
    """Return the compiled modules."""
    shared = [str(path) for path in sorted(FOLDER.iterdir()) if path.suffix in (".pxd", ".h")]
    return [
        Extension(
            f"sprocket.engine.{name}",
            [str(FOLDER / f"{name}.pyx")],
            depends=shared,
            include_dirs=[str(FOLDER)],
            define_macros=[("ENGINE_SOURCES", f'"{digest(name)}"')],
            extra_compile_args=["-O2", "-g0", "-fvisibility=hidden"],
            optional=True,
        )
        for name in MODULES
    ]


os.chdir(Path(__file__).resolve().parent)
setup(ext_modules=extensions())

"""Modules of packages: a test's imports are forgotten after it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def forgotten() -> Iterator[None]:
    """Undo what `load_functions` does to this process."""
    path, modules = list(sys.path), set(sys.modules)
    try:
        yield
    finally:
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if name.startswith("functions_"):
                del sys.modules[name]
        sys.path_importer_cache.clear()

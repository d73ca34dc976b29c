"""Import of packages that only some tables need, with an error that says how to install them."""

from importlib import import_module
from types import ModuleType

from sprocket.common.errors import ConfigError
from sprocket.common.extras import install


def optional_package(name: str, what: str) -> ModuleType:
    """Return the module `name`.  Raises ConfigError that says that `what` needs it and how to install it."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what} needs the Python package {error.name}, which is not installed: {install('spark')}"
        ) from error

"""Packages that only some tables need: imported when they are, with an error that says how to get them."""

from importlib import import_module
from types import ModuleType

from sprocket.common.errors import ConfigError


def optional_package(name: str, what: str) -> ModuleType:
    """The module `name`.  Raises ConfigError that says `what` needs it and how it is installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{what} needs the Python package {error.name}, which is not installed: pip install 'sprocket-mq[spark]'"
        ) from error

"""Sprocket: a message broker that speaks RocketMQ.

This package is the whole public import surface; every other top-level package is an
implementation detail.  Names are loaded on first use, so that ``import sprocket`` costs
nothing and an application that only sends never imports a server::

    from sprocket import Producer, Consumer, Message
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sprocket.client import Consumer, Message, Producer, SendResult
    from sprocket.common.errors import SprocketError

__version__ = "0.1.0"
__all__ = ["Consumer", "Message", "Producer", "SendResult", "SprocketError", "__version__"]

_EXPORTS = {
    "Consumer": "sprocket.client",
    "Message": "sprocket.client",
    "Producer": "sprocket.client",
    "SendResult": "sprocket.client",
    "SprocketError": "sprocket.common.errors",
}


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'sprocket' has no attribute {name!r}")
    return getattr(import_module(module), name)

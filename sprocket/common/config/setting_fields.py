"""Fields of configuration classes: default and documentation in one call.

A key follows from the name of its field, as `namesrvAddr` from `namesrv_addr`; `key` is for those that do not.
"""

from collections.abc import Callable
from dataclasses import Field, field
from typing import Any, TypeVar

T = TypeVar("T")


def int_setting(
    default: int,
    doc: str,
    minimum: int,
    unit: str = "",
    maximum: int | None = None,
    *,
    mutable: bool = False,
    key: str = "",
) -> int:
    """Return a field with a number."""
    return setting(default, doc, key=key, minimum=minimum, maximum=maximum, unit=unit, mutable=mutable)


def bool_setting(default: bool, doc: str, *, mutable: bool = False, key: str = "") -> bool:
    """Return a field with a boolean."""
    return setting(default, doc, key=key, mutable=mutable)


def text_setting(default: str, doc: str, *, mutable: bool = False, key: str = "") -> str:
    """Return a field with a text."""
    return setting(default, doc, key=key, mutable=mutable)


def setting(default: T, doc: str, *, key: str = "", **about: object) -> T:
    """Return a field of any type; `about` is what else `configuration` says of a field.  No repr shows a secret."""
    return field(default=default, repr=not about.get("secret"), metadata={"key": key, "doc": doc, **about})


def made_setting(make: Callable[[], T], doc: str, *, key: str = "", **about: object) -> T:
    """Return a field whose default depends on the machine."""
    return field(default_factory=make, metadata={"key": key, "doc": doc, **about})


def key_of(declared: Field[Any]) -> str:
    """Return the key of a field."""
    first, *words = declared.name.split("_")
    return str(declared.metadata["key"] or first + "".join(word[:1].upper() + word[1:] for word in words))

"""Fields of configuration classes: key, default and documentation in one call."""

from dataclasses import field


def int_setting(
    key: str, default: int, doc: str, minimum: int, unit: str = "", maximum: int | None = None, mutable: bool = False
) -> int:
    """Return a field with a number."""
    metadata = {"key": key, "doc": doc, "minimum": minimum, "maximum": maximum, "unit": unit, "mutable": mutable}
    return field(default=default, metadata=metadata)


def bool_setting(key: str, default: bool, doc: str, *, mutable: bool = False) -> bool:
    """Return a field with a boolean."""
    return field(default=default, metadata={"key": key, "doc": doc, "mutable": mutable})


def text_setting(key: str, default: str, doc: str, *, mutable: bool = False) -> str:
    """Return a field with a text."""
    return field(default=default, metadata={"key": key, "doc": doc, "mutable": mutable})

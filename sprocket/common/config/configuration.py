"""Reading and printing of configuration classes: frozen dataclasses that declare RocketMQ's keys.

A field's metadata declares everything about a key, and the rest derives from it::

    listen_port: int = int_setting(10911, "Port for clients.", 0, maximum=65535)

`key` and `doc` are required; an empty `key` follows from the field's name (`setting_fields`).  Optional: `allowed`
(a tuple), `minimum`, `maximum`, `unit`, `mutable` (may be changed while the server runs; default no), `default_text`
(for a default that depends on the machine), `secret` (its value is never shown).
A class may have a method ``check()`` that raises ConfigError for a bad combination of fields.

Values are converted as in RocketMQ, with three differences in the operator's favour.  White space around a value is
dropped for every type.  A boolean must be ``true`` or ``false``.  A value that cannot be converted stops the start
(RocketMQ silently keeps the default).
Source: RocketMQ 5.3.3, `MixAll.properties2Object`, `MixAll.printObjectProperties`, `Configuration`.
"""

import difflib
import os
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sprocket.common.config import properties
from sprocket.common.config.properties import Entry
from sprocket.common.config.rocketmq_keys import INTEGER_RANGES, reference_keys
from sprocket.common.config.setting_fields import key_of
from sprocket.common.errors import ConfigError

COMMAND_LINE = "command line"
# Twice the size of all keys with values, and four lines for each key: parsing the text blocks the event loop.
MAX_UPDATE_BYTES = 64 * 1024
MAX_UPDATE_LINES = 2_000
# Shown instead of a secret.
_HIDDEN = "******"


class _Declaration(Protocol):
    """Any configuration dataclass."""

    __dataclass_fields__: typing.ClassVar[dict[str, Field[Any]]]


C = TypeVar("C", bound=_Declaration)


@dataclass(frozen=True)
class Setting:
    """One declared key: the field that holds it and the type its text is converted to."""

    owner: type[_Declaration]
    field: str
    key: str
    type: type
    optional: bool
    metadata: Mapping[str, Any]

    @property
    def mutable(self) -> bool:
        return bool(self.metadata.get("mutable", False))

    @property
    def important(self) -> bool:
        """Whether ``-m`` prints it: as RocketMQ does, or as the declaration says."""
        reference = reference_keys().get(self.key)
        return bool(self.metadata.get("important", reference is not None and reference.important))


@dataclass(frozen=True)
class Configuration:
    """Configuration of one server: one object of each class, and notices for its operator."""

    objects: tuple[_Declaration, ...]
    notices: tuple[str, ...] = ()
    # The file that was read, if any, and the keys that the command line overrides.
    path: Path | None = None
    overridden: frozenset[str] = frozenset()

    def of(self, declaration: type[C]) -> C:
        """Return the object of class `declaration`.  Raises KeyError if it was not read."""
        for candidate in self.objects:
            if isinstance(candidate, declaration):
                return candidate
        raise KeyError(declaration.__name__)

    def with_object(self, changed: _Declaration) -> "Configuration":
        """Return a copy in which `changed` replaces the object of its class."""
        objects = tuple(changed if type(held) is type(changed) else held for held in self.objects)
        return replace(self, objects=objects)


@cache
def settings_of(declaration: type[_Declaration]) -> tuple[Setting, ...]:
    """Return the keys that a configuration class declares, in its order; fields without a key are not configuration."""
    hints = typing.get_type_hints(declaration)
    found = []
    for declared in fields(declaration):
        if "key" in declared.metadata:
            hint = hints[declared.name]
            variants = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
            concrete = [variant for variant in variants if variant is not types.NoneType]
            optional = len(concrete) < len(variants)
            found.append(
                Setting(declaration, declared.name, key_of(declared), concrete[0], optional, declared.metadata)
            )
    return tuple(found)


def load(
    declarations: Sequence[type[_Declaration]],
    path: Path | None,
    overrides: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> Configuration:
    """Read the file at `path`, if any, then `overrides` from the command line, then `defaults` for missing keys.

    Raises ConfigError when the file cannot be read or holds a bad value.
    """
    overridden = frozenset(overrides or {})
    if path is None:
        configuration = read(declarations, [], overrides=dict(defaults or {}) | dict(overrides or {}))
        return replace(configuration, overridden=overridden)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    entries = properties.parse(content, str(path))
    in_file = {entry.key for entry in entries}
    lacking = {key: value for key, value in (defaults or {}).items() if key not in in_file}
    configuration = read(declarations, entries, str(path), lacking | dict(overrides or {}))
    return replace(configuration, path=path, overridden=overridden)


def read(
    declarations: Sequence[type[_Declaration]],
    entries: Iterable[Entry],
    source: str = "properties",
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Configuration:
    """Make one object of each declaration; a key goes to every class that declares it.

    `overrides` win over `entries`, and the last of two entries of one key wins.  `environment` (default: the process's)
    has the value of ``$ROCKETMQ_HOME`` in a path.  Raises ConfigError.
    """
    environment = os.environ if environment is None else environment
    settings = [setting for declaration in declarations for setting in settings_of(declaration)]
    known = {setting.key for setting in settings}
    last: dict[str, tuple[str, Entry]] = {}
    notices: list[str] = []
    for entry in entries:
        notices += _notices(entry, source, known, last.get(entry.key))
        last[entry.key] = (f"{source}:{entry.line}", entry)
    for key, value in (overrides or {}).items():
        last[key] = (COMMAND_LINE, Entry(key, value, 0))
    values: dict[type[_Declaration], dict[str, object]] = {declaration: {} for declaration in declarations}
    for setting in settings:
        if setting.key in last:
            place, entry = last[setting.key]
            values[setting.owner][setting.field] = convert(setting, entry.value, place, environment)
    objects = tuple(declaration(**values[declaration]) for declaration in declarations)
    for held in objects:
        _check(held, source, {key: place for key, (place, _) in last.items()})
    return Configuration(objects, tuple(notices))


def convert(setting: Setting, text: str, place: str, environment: Mapping[str, str]) -> object:
    """Return `text` as the type of `setting`.  Raises ConfigError that says place, key, value and what is allowed."""
    stripped = text.strip()
    value: object = None
    if not (setting.optional and not stripped):
        value = _convert(setting.type, stripped, environment)
        if value is None or not _within(setting, value):
            raise ConfigError(f"{place}: {setting.key} = {text!r}: allowed is {allowed_text(setting)}")
    return value


def allowed_text(setting: Setting) -> str:
    """Return the allowed values in words: ``an integer from 1 to 65535``, ``true or false``, ``A or B``."""
    names = _names(setting)
    if names:
        return " or ".join(names)
    if setting.type is bool:
        return "true or false"
    if setting.type is int:
        low, high = _bounds(setting)
        unbounded = high == INTEGER_RANGES["long"][1]
        return f"an integer of at least {low}" if unbounded else f"an integer from {low} to {high}"
    return "a path" if issubclass(setting.type, Path) else "text"


def value_text(value: object) -> str:
    """Return a value as Java prints it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.name if isinstance(value, Enum) else value)


def _shown(setting: Setting, held: _Declaration) -> str:
    """Return the value for printing, without secrets."""
    value = value_text(getattr(held, setting.field))
    return _HIDDEN if value and setting.metadata.get("secret") else value


def printed(configuration: Configuration, important_only: bool = False) -> Iterator[str]:
    """Yield ``key=value`` of every key in order of declaration, for ``-p`` and, with `important_only`, ``-m``."""
    for held in configuration.objects:
        for setting in settings_of(type(held)):
            if setting.important or not important_only:
                yield f"{setting.key}={_shown(setting, held)}"


def to_properties(configuration: Configuration) -> str:
    """Return all keys and values, sorted by key: the body of a GET_BROKER_CONFIG response."""
    pairs = {
        setting.key: _shown(setting, held) for held in configuration.objects for setting in settings_of(type(held))
    }
    return properties.render(dict(sorted(pairs.items())))


def updated(configuration: Configuration, text: bytes | str) -> tuple[Configuration, dict[str, str]]:
    """Return `configuration` after an update request whose body is `text`, and the keys that changed.

    All or nothing.  Raises ConfigError for a key that is unknown or not in the allowlist (`mutable`), and
    for a bad value.
    """
    source = "update"
    changed: dict[str, str] = {}
    for entry in update_entries(text):
        holders = [held for held in configuration.objects if any(s.key == entry.key for s in settings_of(type(held)))]
        if not holders:
            raise ConfigError(f"{entry.key}: {_unknown(entry.key, _keys(configuration))}")
        for held in holders:
            setting = next(s for s in settings_of(type(held)) if s.key == entry.key)
            if not setting.mutable:
                raise ConfigError(
                    f"{entry.key} cannot be changed while the server runs; "
                    "set it in the server's file and restart the server. docs/configuration.md says which keys can"
                )
            value = convert(setting, entry.value, source, {})
            if value != getattr(held, setting.field):
                after = replace(held, **{setting.field: value})
                _check(after, source, {})
                configuration = configuration.with_object(after)
                changed[entry.key] = value_text(value)
    return configuration, changed


def update_entries(text: bytes | str) -> list[Entry]:
    """Return the entries of an update request, one for each key: the last of several wins.

    Raises ConfigError for a text beyond the limits, before it is read, and for one that is malformed.
    """
    content = text if isinstance(text, bytes) else text.encode("iso-8859-1", "replace")
    if len(content) > MAX_UPDATE_BYTES:
        raise ConfigError(f"the update has {len(content)} bytes, the limit is {MAX_UPDATE_BYTES}; send several updates")
    lines = content.count(b"\n") + content.count(b"\r")
    if lines > MAX_UPDATE_LINES:
        raise ConfigError(f"the update has {lines} lines, the limit is {MAX_UPDATE_LINES}; send several updates")
    return list({entry.key: entry for entry in properties.parse(text, "update")}.values())


def mutable_keys(configuration: Configuration) -> list[str]:
    """Return the allowlist of update requests, sorted."""
    return sorted({s.key for held in configuration.objects for s in settings_of(type(held)) if s.mutable})


def _keys(configuration: Configuration) -> set[str]:
    return {setting.key for held in configuration.objects for setting in settings_of(type(held))}


def _check(held: _Declaration, source: str, places: Mapping[str, str]) -> None:
    """Call the object's own `check`; prefix its error, which begins with a key, with the key's place in the file."""
    check = getattr(held, "check", None)
    if check is None:
        return
    try:
        check()
    except ConfigError as error:
        key = re.match(r"\w*", str(error))
        place = places.get(key.group(), source) if key else source
        raise ConfigError(f"{place}: {error}") from None


def _notices(entry: Entry, source: str, known: set[str], earlier: tuple[str, Entry] | None) -> Iterator[str]:
    place = f"{source}:{entry.line}"
    if earlier is not None and entry.value != earlier[1].value:
        yield f"{place}: {entry.key} stands here and in line {earlier[1].line}; this one holds"
    if entry.key not in known:
        yield f"{place}: {entry.key}: {_unknown(entry.key, known)}"


def _unknown(key: str, known: set[str]) -> str:
    """Return why a key has no effect: known to RocketMQ but not supported here, or unknown."""
    reference = reference_keys().get(key)
    if reference is not None:
        default = f", default {reference.default}" if reference.default else ""
        return f"a key of RocketMQ ({reference.owner}{default}) that this server does not support; it has no effect"
    nearest = _nearest(key, known) or _nearest(key, set(reference_keys()))
    return f"unknown key; did you mean {nearest}?" if nearest else "unknown key"


def _nearest(key: str, candidates: set[str]) -> str | None:
    by_lower = {candidate.lower(): candidate for candidate in sorted(candidates)}
    matches = difflib.get_close_matches(key.lower(), list(by_lower), n=1, cutoff=0.75)
    return by_lower[matches[0]] if matches else None


def _convert(wanted: type, text: str, environment: Mapping[str, str]) -> object:
    """Convert `text` to `wanted`; return None if it is no such value."""
    if wanted is bool:
        return {"true": True, "false": False}.get(text.lower())
    if wanted is int:
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
    if issubclass(wanted, Enum):
        return wanted.__members__.get(text)
    if issubclass(wanted, Path):
        return Path(_expanded(text, environment)) if text else None
    return text


def _expanded(path: str, environment: Mapping[str, str]) -> str:
    """Replace ``${user.home}``, ``$ROCKETMQ_HOME`` and ``${ROCKETMQ_HOME}`` in a path.  Raises ConfigError."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        if name == "user.home":
            return str(Path.home())
        home = environment.get("ROCKETMQ_HOME")
        if not home:
            raise ConfigError(f"{path}: ROCKETMQ_HOME is not set in the environment")
        return home

    return re.sub(r"\$\{(user\.home|ROCKETMQ_HOME)\}|\$(ROCKETMQ_HOME)\b", value, path)


def _within(setting: Setting, value: object) -> bool:
    allowed = setting.metadata.get("allowed")
    if allowed is not None and value not in allowed:
        return False
    if setting.type is int:
        low, high = _bounds(setting)
        return isinstance(value, int) and low <= value <= high
    return True


def _bounds(setting: Setting) -> tuple[int, int]:
    """Return the declared bounds, limited to the range of RocketMQ's type of the key."""
    reference = reference_keys().get(setting.key)
    low, high = INTEGER_RANGES["int" if reference is not None and reference.type == "int" else "long"]
    minimum, maximum = setting.metadata.get("minimum"), setting.metadata.get("maximum")
    return (low if minimum is None else minimum, high if maximum is None else maximum)


def _names(setting: Setting) -> list[str]:
    allowed = setting.metadata.get("allowed")
    if allowed is None and issubclass(setting.type, Enum):
        allowed = tuple(setting.type)
    return [value_text(value) for value in allowed or ()]

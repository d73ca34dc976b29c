"""The id of a broker that controllers assigned, in RocketMQ's two files.

`brokerIdentity` has the id.  `brokerIdentity-temp` has an id that the broker applies for, with the code by which
controllers recognise the same broker when it asks again.
Source: RocketMQ 5.3.3, `BrokerMetadata`, `TempBrokerMetadata`.  RocketMQ cannot read a name with a ``#``; here such a
name is refused.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sprocket.common.errors import ConfigError, ProtocolError
from sprocket.common.files.config_file import ConfigFile

_SEPARATOR: Final = "#"
_LONGEST_ID: Final = 18  # digits


@dataclass(frozen=True)
class Identity:
    """Id of one broker in its group; with `check_code` the controllers have not assigned it yet."""

    cluster: str
    name: str
    broker_id: int
    check_code: str = ""

    def encode(self) -> bytes:
        """Return the content of the file."""
        parts = [self.cluster, self.name, str(self.broker_id), *([self.check_code] if self.check_code else [])]
        return _SEPARATOR.join(parts).encode()


def decode_identity(content: bytes) -> Identity:
    """Return what a file says, of either kind.  Raises ProtocolError."""
    try:
        parts = content.decode().split(_SEPARATOR)
    except UnicodeDecodeError as error:
        raise ProtocolError("broker identity", str(error)) from None
    if len(parts) not in (3, 4) or not parts[2].isascii() or not parts[2].isdigit() or len(parts[2]) > _LONGEST_ID:
        raise ProtocolError("broker identity", f"{content[:100]!r} is not cluster#broker#id")
    return Identity(parts[0], parts[1], int(parts[2]), parts[3] if len(parts) == 4 else "")


class IdentityFiles:
    """The two files of one broker.  `path` is that of the assigned id."""

    def __init__(self, path: Path, cluster: str, name: str) -> None:
        self._file = ConfigFile(path)
        self._pending = ConfigFile(path.with_name(path.name + "-temp"))
        self._cluster = cluster
        self._name = name

    def check(self) -> None:
        """Raise ConfigError for names that the files cannot hold."""
        for key, value in (("brokerClusterName", self._cluster), ("brokerName", self._name)):
            if _SEPARATOR in value:
                raise ConfigError(f"{key} = {value!r}: no {_SEPARATOR} is allowed with enableControllerMode")

    def assigned(self) -> Identity | None:
        """Return the assigned id, None if there is none.  Raises `StoreError`, and ConfigError for another broker's."""
        return self._own(self._file, self._file.load(decode_identity))

    def pending(self) -> Identity | None:
        """Return the id that was applied for, None if there is none.  Raises as `assigned` does."""
        return self._own(self._pending, self._pending.load(_decode_pending))

    def _own(self, file: ConfigFile, found: Identity | None) -> Identity | None:
        if found is not None and (found.cluster, found.name) != (self._cluster, self._name):
            says = f"{file.path}: this directory belongs to broker {found.name} of cluster {found.cluster}"
            advice = "correct brokerName and brokerClusterName, or choose another directory"
            raise ConfigError(f"{says}, not to {self._name} of {self._cluster}: {advice}")
        return found

    def apply_for(self, broker_id: int, check_code: str) -> Identity:
        """Note an id before controllers are asked for it.  Raises `StoreError`."""
        identity = Identity(self._cluster, self._name, broker_id, check_code)
        self._pending.write(identity.encode())
        return identity

    def assign(self, identity: Identity) -> Identity:
        """Note that controllers assigned the id.  Raises `StoreError`."""
        assigned = Identity(identity.cluster, identity.name, identity.broker_id)
        self._file.write(assigned.encode())
        self.give_up()
        return assigned

    def give_up(self) -> None:
        """Forget the id that was applied for: it is assigned, or another broker has it."""
        for path in (self._pending.path, self._pending.backup):
            path.unlink(missing_ok=True)


def _decode_pending(content: bytes) -> Identity:
    found = decode_identity(content)
    if not found.check_code:
        raise ProtocolError("broker identity", "an id that was applied for has no check code")
    return found

"""Leases: an external reader of the segment files, such as Spark or a backup, keeps segments for a limited time.

A lease is a file ``<store>/leases/<name>.json``::

    {"owner": "nightly-backup", "from_offset": 1073741824, "deadline_ms": 1700000000000}

Any process that may write to the directory can take a lease, without asking a broker.  Segments with a byte at or after
`from_offset` are kept until the deadline, wall clock, ms since the epoch.  The broker checks the leases once a second,
and before it removes a segment.  A reader takes its lease first and opens the files after it.  If the first file is
missing then, the lease came too late.

The disk wins over a lease.  Above diskSpaceCleanForciblyRatio leased segments are removed, too.  Otherwise the broker
would refuse all messages.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from sprocket.common.clock import Clock, SystemClock
from sprocket.common.errors import StoreError
from sprocket.common.files.atomic_file import replace_file, sync_directory
from store.disk.disk import Disk, RealDisk

_log = logging.getLogger(__name__)
DIRECTORY: Final = "leases"
DEFAULT_LONGEST_MS: Final = 24 * 3_600_000
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
_SUFFIX: Final = ".json"
# Further files are not read: a directory full of files must not stop the broker.
MAX_LEASES: Final = 1024
_MAX_BYTES: Final = 64 * 1024
_END_OF_OFFSETS: Final = 1 << 63
_SWEEP_AFTER_MS: Final = 3_600_000


class Lease(msgspec.Struct, frozen=True):
    """Lease of one reader."""

    owner: str
    from_offset: int
    deadline_ms: int


class LeaseRefused(StoreError):
    """A lease was refused; the message says why."""


class Leases:
    """Leases of one store, from any process.  `longest_ms` should equal that of the broker (maxLeaseTime)."""

    def __init__(
        self,
        store_root: Path,
        *,
        longest_ms: int = DEFAULT_LONGEST_MS,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.directory = store_root / DIRECTORY
        self._longest_ms = longest_ms
        self._clock: Clock = SystemClock() if clock is None else clock
        self._disk: Disk = RealDisk() if disk is None else disk
        self._complained: set[tuple[str, str]] = set()

    def acquire(self, name: str, owner: str, from_offset: int, duration_ms: int) -> Lease:
        """Keep all from physical offset `from_offset` on for `duration_ms`.  Replaces an own or an expired lease.

        Raises `LeaseRefused` for an invalid name, offset or duration, or if another owner holds `name`; OSError if the
        file cannot be written.
        """
        self._check(name, from_offset, duration_ms)
        held = self.list().get(name)
        if held is not None and held.owner != owner:
            raise LeaseRefused(f"lease {name} is held by {held.owner!r} until {held.deadline_ms}")
        lease = Lease(owner, from_offset, self._clock.wall_ms() + duration_ms)
        replace_file(self._path(name), msgspec.json.encode(lease))
        return lease

    def renew(self, name: str, owner: str, duration_ms: int, from_offset: int | None = None) -> Lease:
        """Extend a lease to `duration_ms` from now, and move it to `from_offset` if given.

        Raises `LeaseRefused` if the lease has ended, because segments may be gone; otherwise as `acquire`.
        """
        held = self.list().get(name)
        if held is None or held.owner != owner:
            raise LeaseRefused(f"{owner!r} holds no lease {name}: it has ended, or another owner holds it")
        return self.acquire(name, owner, held.from_offset if from_offset is None else from_offset, duration_ms)

    def release(self, name: str, owner: str) -> bool:
        """Release a lease.  Return whether `owner` held it."""
        held = self.list().get(name)
        if held is None or held.owner != owner:
            return False
        path = self._path(name)
        path.with_name(path.name + ".bak").unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        sync_directory(self.directory)
        return True

    def list(self) -> dict[str, Lease]:
        """Return the valid leases by name.  Skip unreadable, ended or absurd ones with a warning."""
        leases = {}
        now_ms = self._clock.wall_ms()
        files = self._files()
        for name, size in files[:MAX_LEASES]:
            held = self._read(name, size)
            reason = held if isinstance(held, str) else self._fault(held, now_ms)
            if reason is not None:
                self._complain(name, reason)
            elif isinstance(held, Lease):
                leases[name.removesuffix(_SUFFIX)] = held
        if len(files) > MAX_LEASES:
            self._complain("", f"there are {len(files)} leases, only {MAX_LEASES} are read")
        return leases

    def sweep(self) -> None:
        """Remove the files of leases that ended more than an hour ago.  Raises `DiskFailed`."""
        now_ms = self._clock.wall_ms()
        for name, size in self._files():
            held = self._read(name, size)
            if isinstance(held, Lease) and held.deadline_ms < now_ms - _SWEEP_AFTER_MS:
                self._disk.remove(self.directory / (name + ".bak"))
                self._disk.remove(self.directory / name)

    def _files(self) -> Sequence[tuple[str, int | None]]:
        """Return names and sizes of possible leases.  The size is None for what is not a regular file."""
        return [(name, size) for name, size in self._disk.entries(self.directory) if name.endswith(_SUFFIX)]

    def _read(self, name: str, size_bytes: int | None) -> Lease | str:
        # Reading a pipe would never end, and a huge file would fill the memory.
        if size_bytes is None or size_bytes > _MAX_BYTES:
            return "it is no lease"
        try:
            content = self._disk.read(self.directory / name)
        except StoreError as error:
            # An unreadable lease must not hide the others.
            return str(error)
        if content is None:
            return "it is gone"
        try:
            return msgspec.json.decode(content, type=Lease)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return "it is no lease"

    def _fault(self, lease: Lease, now_ms: int) -> str | None:
        if lease.deadline_ms <= now_ms:
            return "it has ended"
        if lease.deadline_ms > now_ms + self._longest_ms:
            return f"it ends later than {self._longest_ms} ms from now, the longest time allowed"
        return None if 0 <= lease.from_offset < _END_OF_OFFSETS else "its offset is out of range"

    def _complain(self, name: str, reason: str) -> None:
        if (name, reason) not in self._complained:
            if len(self._complained) >= MAX_LEASES:
                self._complained.clear()
            self._complained.add((name, reason))
            _log.warning("event=lease_ignored lease=%s reason=%r", name, reason)

    def _check(self, name: str, from_offset: int, duration_ms: int) -> None:
        if not _NAME.fullmatch(name):
            raise LeaseRefused(f"lease {name!r}: a name has 1 to 64 letters, digits, _, - and . inside")
        if not 0 <= from_offset < _END_OF_OFFSETS:
            raise LeaseRefused(f"lease {name}: offset {from_offset} is out of range")
        if not 0 < duration_ms <= self._longest_ms:
            raise LeaseRefused(f"lease {name}: {duration_ms} ms; allowed are 1 to {self._longest_ms}")

    def _path(self, name: str) -> Path:
        return self.directory / (name + _SUFFIX)


def held_from(leases: Iterable[Lease]) -> int | None:
    """Return the lowest offset that any of `leases` holds; None without leases."""
    return min((lease.from_offset for lease in leases), default=None)

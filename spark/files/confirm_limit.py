"""Limit of reads of a live store: no message that consumers may not see yet.

A broker that syncs or replicates a message before consumers see it keeps the mark ``confirm`` in the root of its store
(`store.flush.confirm_mark`).  A mark without a running broker is left over from a kill and limits nothing, because the
next start confirms the whole log.  The store's lock shows whether a broker runs; where locks are not visible, as in a
folder shared by another machine, the age of the mark does.
"""

import logging
from pathlib import Path
from typing import Final

from sprocket.common.clock import Clock, SystemClock
from sprocket.common.errors import ConfigError, StoreError
from store.disk.disk import RealDisk
from store.disk.store_lock import is_locked
from store.flush.confirm_mark import CONFIRM_MARK, decode_confirm_mark

logger = logging.getLogger(__name__)

_FRESH_MS: Final = 60_000
# A mark is written in place: if it is read half written, read it again.
_TRIES: Final = 200


def confirm_limit(root: Path, clock: Clock | None = None) -> int | None:
    """Return the physical offset where reads of the store at `root` must end now, None without a limit.

    Raises ConfigError if the mark exists but cannot be read.
    """
    now_ms = (clock or SystemClock()).wall_ms()
    mark = _read(root / CONFIRM_MARK)
    if mark is None:
        return None
    if isinstance(mark, str):
        if not _has_broker(root, now_ms):
            return None
        raise ConfigError(
            f"{root / CONFIRM_MARK} cannot be read: {mark}; it says how far the running broker lets consumers see: "
            "restart the broker, or read the store when it is stopped"
        )
    offset, written_ms = mark
    if _has_broker(root, now_ms - written_ms):
        return offset
    logger.info("event=confirm_mark_left_over store=%s offset=%d", root, offset)
    return None


def _read(path: Path) -> tuple[int, int] | str | None:
    found: tuple[int, int] | str = ""
    for _ in range(_TRIES):
        try:
            content = RealDisk().read(path)
        except StoreError as error:
            return str(error)
        if content is None:
            return None
        found = decode_confirm_mark(content)
        if not isinstance(found, str):
            return found
    return found


def _has_broker(root: Path, age_ms: int) -> bool:
    """Return whether a broker seems to run on the store; `age_ms` is the age of its mark."""
    try:
        if is_locked(root / "lock"):
            return True
    except OSError:
        pass
    return age_ms < _FRESH_MS

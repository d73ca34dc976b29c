"""Up to where the log of a live store may be read: never past what consumers may see.

A broker that syncs or replicates before it shows a message keeps the mark ``confirm`` in its store's root
(`store.flush.confirm_mark`).  A mark without a broker is what a kill left behind: the next start confirms the whole
log, so it limits nothing.  The store's lock tells whether a broker is there, or, where locks cannot be seen (a folder
that another machine shares), the age of the mark.
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
# A mark is written in place; one that is read half written is whole a moment later.
_TRIES: Final = 200


def confirm_limit(root: Path, clock: Clock | None = None) -> int | None:
    """Physical offset behind which nothing of the store at `root` may be read now; None if there is no such limit.

    Raises ConfigError if there is one and it cannot be read.
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
    logger.info("event=confirm_mark_left_behind store=%s offset=%d", root, offset)
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
    """Whether a broker runs on the store, as far as can be told; `age_ms` is that of what it wrote last."""
    try:
        if is_locked(root / "lock"):
            return True
    except OSError:
        pass
    return age_ms < _FRESH_MS

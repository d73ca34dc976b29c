"""Control for an archive: packs closed CommitLog files as a broker's archive does, and keeps nothing.

`python -m benchmarks.system.packing <commitlog> <bytes of a file>` runs until it is stopped, beside a broker without an
archive.  What this costs the broker is the price of a processor that compresses, not of the archive.
"""

import sys
import time
from collections import deque
from pathlib import Path
from typing import Final

from benchmarks.system import process
from store.layout import file_name
from store.tier.segment_process import SegmentProcess
from store.tier.segment_writer import Kept, LogPart

_PAUSE_S: Final = 0.1


def main() -> None:
    directory, file_bytes = Path(sys.argv[1]), int(sys.argv[2])
    packer, start = SegmentProcess(directory, file_bytes, ""), 0
    try:
        while True:
            end = start + file_bytes
            if _has_begun(directory / file_name(end)):
                deque(packer.segment(LogPart(start, end, end), Kept()), maxlen=0)
                start = end
            else:
                time.sleep(_PAUSE_S)
    finally:
        packer.close()


def _has_begun(path: Path) -> bool:
    """Return whether the broker writes into this file, so that the one before it is closed."""
    try:
        with path.open("rb") as file:
            return any(file.read(8))
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    process.leave_on_sigterm()
    main()

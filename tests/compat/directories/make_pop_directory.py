"""Makes ``data/apache-pop-5.3.3.tar.xz``: the directory of an Apache RocketMQ broker with popped messages in flight.

``python -m tests.compat.directories.make_pop_directory`` needs Java and Maven and takes half a minute.
"""

import json
import tarfile
import tempfile
from pathlib import Path

from tests.compat.directories.test_pop_directories import GOLDEN, leave, settings_at
from tests.compat.directories.turns import ApacheBroker


def main() -> None:
    """Write the archive again."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        with ApacheBroker(root / "servers", properties=settings_at(root / "store")) as cluster:
            popped = leave(cluster)
        fields = [(each.body, each.queue_id, each.queue_offset, each.handle) for each in popped]
        (root / "popped.json").write_text(json.dumps(fields))
        with tarfile.open(GOLDEN, "w:xz") as archive:
            archive.add(root / "popped.json", "popped.json")
            archive.add(root / "store", "store")
    print(f"{GOLDEN}: {GOLDEN.stat().st_size} bytes")


if __name__ == "__main__":
    main()

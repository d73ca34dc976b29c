"""Makes ``data/sprocket-COMMIT.tar.xz``: the directory of a killed broker of a previous version, and what it had done.

``git archive 1409cd06 | tar x -C FOLDER``, then
``python -m tests.compat.upgrades.make_sprocket_directory 1409cd06 FOLDER``: this takes a quarter of a minute.  One for
each version whose stores must open.  Tests need only the archive.
"""

import asyncio
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.compat.directories.turns import SHORT_DELAYS, Ledger, first_turn, properties
from tests.compat.upgrades.previous import PreviousCluster

_FOLDER = Path(__file__).resolve().parents[1] / "data"


def main() -> None:
    """Write the archive of the version named by the arguments: its commit, and a folder with its source code."""
    commit, source = sys.argv[1], Path(sys.argv[2])
    target = _FOLDER / f"sprocket-{commit}.tar.xz"
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        ledger = Ledger()
        settings = {**properties(root / "store"), **SHORT_DELAYS, "timerWheelEnable": "false"}
        with PreviousCluster(source.absolute(), root / "servers", properties=settings) as cluster:
            asyncio.run(first_turn(cluster, ledger))
            cluster.brokers[0].kill()
        (root / "ledger.json").write_text(ledger.to_json())
        with tarfile.open(target, "w:xz") as archive:
            archive.add(root / "ledger.json", "ledger.json")
            archive.add(root / "store", "store")
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()

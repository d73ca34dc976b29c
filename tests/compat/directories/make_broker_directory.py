"""Makes ``data/apache-broker-5.3.3.tar.xz``: the directory of a killed Apache RocketMQ broker, and what it had done.

``python -m tests.compat.directories.make_broker_directory`` needs Java and Maven and takes half a minute.
"""

import asyncio
import tarfile
import tempfile
from pathlib import Path

from tests.compat.directories.turns import SHORT_DELAYS, ApacheBroker, Ledger, first_turn, properties

_TARGET = Path(__file__).resolve().parents[1] / "data" / "apache-broker-5.3.3.tar.xz"
# Files of the timer wheel have 38 MB each; other tests take them over from a live broker.
_EXTRA = {"timerWheelEnable": "false", **SHORT_DELAYS}


def main() -> None:
    """Write the archive again."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        ledger = Ledger()
        with ApacheBroker(root / "servers", properties={**properties(root / "store"), **_EXTRA}) as cluster:
            asyncio.run(first_turn(cluster, ledger, is_timed=False))
            cluster.brokers[0].kill()
        (root / "ledger.json").write_text(ledger.to_json())
        with tarfile.open(_TARGET, "w:xz") as archive:
            archive.add(root / "ledger.json", "ledger.json")
            archive.add(root / "store", "store")
    print(f"{_TARGET}: {_TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()

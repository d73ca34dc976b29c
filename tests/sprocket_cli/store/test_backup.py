"""`sprocket store backup`, `verify` and `restore` beside a broker under load that is killed."""

import base64
import json
import random
import threading
from pathlib import Path

from click.testing import CliRunner, Result

from sprocket import Message
from sprocket.sync import Producer
from sprocket.testing import Broker
from sprocket_cli.main import main

SEGMENT_BYTES = 256 * 1024
TOPIC = "Payments"
QUEUES = 4


def sprocket(*words: object) -> Result:
    return CliRunner().invoke(main, ["store", *map(str, words)])


def document(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


class Load:
    """Sends in a thread of its own until told to stop or the broker is gone; keeps what was acknowledged."""

    def __init__(self, namesrv: str) -> None:
        self.acknowledged: list[bytes] = []
        self._namesrv = namesrv
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Send no further message; one may still be on its way."""
        self._over.set()

    def join(self) -> None:
        self._thread.join()

    def _send(self) -> None:
        with Producer("load", self._namesrv) as producer:
            number = 0
            while not self._over.is_set():
                body = b"%08d" % number + random.randbytes(3900)
                try:
                    producer.send(Message(TOPIC, body))
                except Exception:
                    return  # the broker was killed
                self.acknowledged.append(body[:8])
                number += 1


def bodies(store: Path) -> set[bytes]:
    dumped = sprocket("export", store, "--topic", TOPIC, "-o", store.parent / "rows.jsonl")
    assert dumped.exit_code == 0, dumped.output
    rows = (store.parent / "rows.jsonl").read_text().splitlines()
    return {base64.b64decode(json.loads(line)["body"])[:8] for line in rows}


def test_backups_under_load_hold_all_that_was_acknowledged_before(tmp_path: Path) -> None:
    target = tmp_path / "backup"
    properties = {"mappedFileSizeCommitLog": str(SEGMENT_BYTES), "flushDiskType": "SYNC_FLUSH"}
    with Broker(tmp_path / "first", properties=properties) as broker:
        broker.create_topic(TOPIC, QUEUES)
        load = Load(broker.namesrv)
        load.start()
        copied = []
        copied = []
        known: list[bytes] = []
        for _ in range(3):
            before = len(load.acknowledged)
            while len(load.acknowledged) < before + 70:
                assert threading.active_count() > 1
            known = list(load.acknowledged)
            found = document(sprocket("backup", broker.store, "--to", target, "--verify", "--json"))
            assert found["faults"] == []
            copied.append((found["copiedSegments"], found["segments"]))
        assert copied[2][0] < copied[2][1], "the third backup copied everything again"  # type: ignore[operator]
        load.end()
        broker.kill()
        load.join()
    folder = tmp_path / "second"
    assert sprocket("restore", target, "--to", folder / "store").exit_code == 0
    checked = sprocket("check", folder / "store", "--segment-bytes", SEGMENT_BYTES)
    assert checked.exit_code == 0, checked.output
    assert "are not built yet: the first start of a broker builds all queues" in checked.output
    with Broker(folder, properties=properties) as broker:
        with Producer("more", broker.namesrv) as producer:
            producer.send(Message(TOPIC, b"new here" + bytes(3900)))
        assert set(known) | {b"new here"} <= bodies(broker.store)

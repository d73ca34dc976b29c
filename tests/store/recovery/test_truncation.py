"""A cut of the log is noted before it begins, and completed by the next start."""

import struct
from pathlib import Path

import pytest

import store.recovery.truncation as store_truncation
from store.disk.disk import DiskFile
from store.disk.sealed_file import seal
from store.message_store import MessageStore
from tests.store.reading import bodies
from tests.store.recovery.test_damage import contents, fill, overwrite
from tests.store.rig import FaultyDisk, Stores, message

SEGMENT = 16 * 1024


class Killed(BaseException):
    """The process ends here."""


class Writes(FaultyDisk):
    """Notes which small files are written."""

    def __init__(self) -> None:
        super().__init__()
        self.small: list[str] = []

    def write_small(self, path: Path, content: bytes) -> None:
        self.small.append(path.name)
        super().write_small(path, content)


class Held(FaultyDisk):
    """Notes which files are opened and not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[Path] = []

    def open(self, path: Path, *, preallocate: bool) -> DiskFile:
        file = super().open(path, preallocate=preallocate)
        close = file.close

        def closed() -> None:
            self.held.remove(path)
            close()

        file.close = closed  # type: ignore[method-assign]
        self.held.append(path)
        return file


def intent(stores: Stores, end: int) -> None:
    (stores.root / "truncate").write_bytes(seal(b"TRNC", struct.pack(">q", end)))


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_with_nothing_to_cut_writes_no_intent(stores: Stores, clean: bool) -> None:
    store = stores.open()
    fill(store, 100)
    (stores.close if clean else stores.crash)(store)
    disk = stores.disk = Writes()
    stores.open()
    assert disk.small == ["abort"]


@pytest.mark.parametrize("point", ["_INTENT_WRITTEN", "_LOG_CUT", "_INTENT_REMOVED"])
def test_a_cut_that_a_crash_breaks_off_is_completed(
    stores: Stores, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    store = stores.open()
    fill(store, 100)
    entry = store.entry("Orders", 2, 20)
    assert entry is not None
    held = {key: found[: 20 + (key[1] < 2)] for key, found in contents(store).items()}
    stores.crash(store)
    overwrite(stores, entry[0] + 4, b"no magic")

    def die() -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(store_truncation, point, die)
        with pytest.raises(Killed):
            stores.open()
    store = stores.open()
    assert store.wrote_offset == entry[0]
    assert contents(store) == held
    assert not (stores.root / "truncate").exists()
    behind = b"".join(path.read_bytes() for path in stores.segments())[entry[0] :]
    assert not any(behind)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kept", [0, 1, 20, 99])
def test_an_intent_below_the_checkpoint_is_completed(stores: Stores, kept: int, clean: bool) -> None:
    """As in a replica that truncated what its master never had, and crashed in the middle."""
    store = stores.open()
    appended = store.append([message("Orders", k % 3, b"%06d" % k + b"." * 200) for k in range(100)])
    end = appended[kept][1]
    store = stores.reopen(store)
    held = {("Orders", q): bodies(store, "Orders", q)[: (kept - q + 2) // 3] for q in range(3)}
    (stores.close if clean else stores.crash)(store)
    intent(stores, end)
    store = stores.open()
    assert store.wrote_offset == end == store.flushed_offset
    assert contents(store) == {key: found for key, found in held.items() if found}
    assert store.append([message("Orders", 0, b"next")])[0][:2] == (len(held["Orders", 0]), end)
    store = stores.reopen(store, crash=True)
    assert bodies(store, "Orders", 0) == [*held["Orders", 0], b"next"]


def test_old_records_do_not_follow_a_new_one_that_ends_where_they_begin(stores: Stores) -> None:
    store = stores.open()
    fill(store, 9)
    entry = store.entry("Orders", 1, 1)
    assert entry is not None
    stores.crash(store)
    intent(stores, entry[0])
    store = stores.open()
    # The size of the old record: the new one ends where the next old record began.
    store.append([message("Orders", 1, b"NEW___" + b"." * 200)])
    held = contents(store)
    assert sum(map(len, held.values())) == 5
    stores.crash(store)
    for name in ("queuelist", "checkpoint"):
        (stores.root / name).unlink(missing_ok=True)
    assert contents(stores.open()) == held


@pytest.mark.parametrize("content", [b"", b"SPKTTRNC", b"\0" * 100, seal(b"QLST", b"12345678")])
def test_a_torn_intent_was_never_begun(stores: Stores, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    store: MessageStore = stores.open()
    fill(store, 20)
    held = contents(store)
    stores.close(store)
    (stores.root / "truncate").write_bytes(content)
    assert contents(stores.open()) == held
    assert not (stores.root / "truncate").exists()
    assert "event=truncation_intent_removed" in caplog.text


def test_an_intent_beyond_the_log_cuts_nothing(stores: Stores) -> None:
    store = stores.open()
    fill(store, 20)
    held = contents(store)
    stores.close(store)
    intent(stores, 1 << 40)
    assert contents(stores.open()) == held


def test_a_segment_that_was_cut_off_is_held_by_nobody(stores: Stores) -> None:
    store = stores.open()
    fill(store, 10)
    store = stores.reopen(store)
    fill(store, 200, start=10)
    stores.crash(store)
    segments = stores.segments()
    segments[1].unlink()
    disk = Held()
    stores.disk = disk
    stores.open()
    assert not segments[2].exists()
    assert [path for path in disk.held if path in segments] == segments[:1]

"""Bugs of tiered storage; see `tests.mutants.definitions`."""

from typing import Final

from tests.mutants.mutant import Mutant

_WRITER: Final = ("tests/store/tier/test_archive_writer.py",)

TIER_MUTANTS: Final = (
    Mutant(
        "archived object is not read back",
        "store/tier/whole_objects.py",
        "    return left == 0 and digest.hexdigest() == sha256\n",
        "    return True\n",
        "the disk drops what the object store has lost or changed",
        _WRITER,
    ),
    Mutant(
        "tables of an archive are not compared",
        "store/tier/whole_objects.py",
        "        if hashlib.sha256(content).hexdigest() != entry.sha256:\n",
        "        if False:\n",
        "accounts that somebody put into the bucket are restored",
        ("tests/store/tier/test_restore.py",),
    ),
    Mutant(
        "archive without its manifest begins again",
        "store/tier/whole_objects.py",
        "    async for found in objects.list(SEGMENTS):\n",
        "    async for found in objects.list(NAME):\n",
        "all that was archived is forgotten after somebody deleted one object",
        _WRITER,
    ),
    Mutant(
        "archive's manifest is believed to be written",
        "store/tier/archive_writer.py",
        "        if found.content == content:\n",
        "        if True:\n",
        "a master that was replaced drops files that nobody has archived",
        _WRITER,
    ),
    Mutant(
        "archive claimed from a later epoch",
        "store/tier/archive_writer.py",
        "        if manifest.writer.epoch > self._epoch:\n",
        "        if False:\n",
        "a master that was replaced takes the archive back",
        _WRITER,
    ),
    Mutant(
        "archive not compared with the log",
        "store/tier/archive_writer.py",
        "        if agreed < manifest.uploaded_end:\n",
        "        if False:\n",
        "the archive mixes the logs of two masters",
        _WRITER,
    ),
    Mutant(
        "not archived records are uploaded",
        "store/tier/segment_writer.py",
        "        changed[offset - at : offset - at + len(new)] = new\n",
        "        pass\n",
        "messages leave the machine that must not",
        ("tests/store/tier/test_segment_object.py",),
    ),
    Mutant(
        "the disk drops what is not archived",
        "broker/archive/archive_service.py",
        "        core.store.cleaner.keep_until_archived(None if archive is None else 0)\n",
        "        core.store.cleaner.keep_until_archived(None)\n",
        "acknowledged messages are lost while the object store is away",
        ("tests/broker/archive/test_archive_service.py",),
    ),
)

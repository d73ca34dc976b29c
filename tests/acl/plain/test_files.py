"""Files of accounts that change while a server runs."""

import logging
from pathlib import Path

import pytest

from acl.plain.files import PlainFiles

ONE = "accounts:\n- {accessKey: Application, secretKey: a-long-secret, topicPerms: [orders=DENY]}\n"
TWO = ONE + "- {accessKey: Another1, secretKey: another-secret}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    path = tmp_path / "conf" / "plain_acl.yml"
    path.write_text(ONE)
    return path


@pytest.fixture
def files(path: Path) -> PlainFiles:
    files = PlainFiles(path.parent.parent)
    files.load()
    files.watch()
    return files


def test_what_is_being_written_counts_when_it_no_longer_changes(path: Path, files: PlainFiles) -> None:
    for text in ("accounts:\n", ONE.replace(", topicPerms: [orders=DENY]", ""), TWO):
        path.write_text(text)
        files.watch()
        assert files.policy.secrets == [("Application", "a-long-secret")]
    files.watch()
    assert files.policy.account_count == 2


def test_a_file_that_is_empty_now_takes_no_account_away(
    path: Path, files: PlainFiles, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text("")
    for _ in range(3):
        files.watch()
    assert files.policy.account_count == 1
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        f"event=accounts_kept reason='{path}: empty; write accounts: [] for no accounts'"
    ]
    other = path.parent / "acl" / "more.yml"
    other.parent.mkdir()
    other.write_text(TWO)
    files.reload()
    assert files.policy.account_count == 1
    path.write_text("accounts: []")
    files.reload()
    assert files.policy.account_count == 2
    path.write_text(" \n")
    other.write_text("accounts: []\n")
    files.reload()
    assert files.policy.account_count == 0


def test_a_file_that_was_empty_from_the_start_is_in_nobodys_way(path: Path) -> None:
    path.write_text("")
    files = PlainFiles(path.parent.parent)
    files.load()
    (path.parent / "acl").mkdir()
    (path.parent / "acl" / "more.yml").write_text(TWO)
    files.reload()
    assert files.policy.account_count == 2

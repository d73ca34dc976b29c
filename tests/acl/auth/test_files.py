"""Content of the files, and what nobody can read in them."""

from pathlib import Path

import pytest

from acl.auth.document import opened_from_master, sealed_for_replica
from acl.auth.files import AuthFiles
from acl.auth.model import User, UserStatus, UserType
from acl.auth.secrets import KEY_BYTES, Seal, SealBroken, derived_key
from acl.auth.tables import AuthContent
from sprocket.common.errors import ProtocolError, StoreError
from tests.acl.auth.test_tables import acl

USERS = {
    "admin": User("admin", "once upon a time", UserType.SUPER),
    "test": User("test", "ünïcode", UserType.NORMAL, UserStatus.DISABLE),
}
ACLS = {"User:test": acl("User:test", "Topic:orders*,Group:billing")}
CONTENT = AuthContent(USERS, ACLS)


def counted(size: int) -> bytes:
    return bytes(range(size))


def test_what_is_sealed_is_opened_by_who_has_the_key_and_as_what_it_was() -> None:
    seal = Seal(bytes(KEY_BYTES), counted)
    sealed = seal.sealed_text("once upon", "User:admin")
    assert "once" not in sealed
    assert seal.opened_text(sealed, "User:admin") == "once upon"
    for broken in ("", "no base64!", sealed[:8], sealed[:-4] + "AAA="):
        with pytest.raises(SealBroken):
            seal.opened_text(broken, "User:admin")
    with pytest.raises(SealBroken, match="User:test: sealed with another key"):
        seal.opened_text(sealed, "User:test")
    with pytest.raises(SealBroken):
        Seal(bytes(KEY_BYTES - 1) + b"1", counted).opened_text(sealed, "User:admin")


def test_a_derived_key_is_one_of_hkdf() -> None:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    expected = HKDF(SHA256(), KEY_BYTES, salt=None, info=b"purpose").derive(b"secret")
    assert derived_key("secret", "purpose") == expected


def test_files_hold_what_was_saved_and_no_password(tmp_path: Path) -> None:
    AuthFiles(tmp_path).save(AuthContent(USERS, {}))
    AuthFiles(tmp_path).load()
    files = AuthFiles(tmp_path)
    files.load()
    files.save(CONTENT)
    assert AuthFiles(tmp_path).load() == CONTENT
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path
        assert b"once upon" not in path.read_bytes()
        assert "ünïcode".encode() not in path.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"auth.json", "auth.json.bak", "auth.key"}


def test_nothing_saved_is_nothing(tmp_path: Path) -> None:
    assert AuthFiles(tmp_path).load() == AuthContent()
    assert list(tmp_path.iterdir()) == []


def test_users_of_rocketmq_that_are_not_read_are_spoken_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "users").mkdir()
    assert AuthFiles(tmp_path).load() == AuthContent()
    assert "event=rocksdb_users_ignored" in caplog.text
    AuthFiles(tmp_path).save(CONTENT)
    caplog.clear()
    assert AuthFiles(tmp_path).load() == CONTENT
    assert "rocksdb" not in caplog.text


def test_a_key_may_be_elsewhere(tmp_path: Path) -> None:
    key_file = tmp_path / "keys" / "own"
    AuthFiles(tmp_path / "config", key_file).save(CONTENT)
    assert len(key_file.read_bytes()) == KEY_BYTES
    assert AuthFiles(tmp_path / "config", key_file).load() == CONTENT
    with pytest.raises(StoreError, match=r"auth\.key: missing, and .*auth\.json cannot be read without it"):
        AuthFiles(tmp_path / "config").load()


def test_a_key_of_another_file(tmp_path: Path) -> None:
    AuthFiles(tmp_path).save(CONTENT)
    (tmp_path / "auth.key").write_bytes(bytes(KEY_BYTES))
    with pytest.raises(StoreError, match="User:admin: sealed with another key"):
        AuthFiles(tmp_path).load()
    (tmp_path / "auth.key").write_bytes(b"short")
    with pytest.raises(StoreError, match="5 bytes, a key has 32"):
        AuthFiles(tmp_path).load()


def test_clear_passwords_where_the_operator_wants_them_and_not_after(tmp_path: Path) -> None:
    AuthFiles(tmp_path, in_clear=True).save(CONTENT)
    assert not (tmp_path / "auth.key").exists()
    assert b"once upon a time" in (tmp_path / "auth.json").read_bytes()
    assert AuthFiles(tmp_path, in_clear=True).load() == CONTENT
    assert AuthFiles(tmp_path).load() == CONTENT
    assert all(b"once upon" not in path.read_bytes() for path in tmp_path.iterdir())
    assert AuthFiles(tmp_path).load() == CONTENT


def test_a_broken_file_gives_way_to_its_backup(tmp_path: Path) -> None:
    files = AuthFiles(tmp_path)
    files.save(AuthContent(USERS, {}))
    files.save(CONTENT)
    (tmp_path / "auth.json").write_bytes(b'{"users":[')
    assert AuthFiles(tmp_path).load() == AuthContent(USERS, {})
    (tmp_path / "auth.json.bak").write_bytes(b"[]")
    with pytest.raises(StoreError, match="repair the file or restore it"):
        AuthFiles(tmp_path).load()
    (tmp_path / "auth.json").write_bytes(b'{"users":[{"username":"u","userType":"Emperor","password":"x"}]}')
    with pytest.raises(StoreError, match="userType 'Emperor' is not one of Super, Normal"):
        AuthFiles(tmp_path).load()


def test_what_travels_can_be_read_by_replicas_alone() -> None:
    seal = Seal(derived_key("inner secret", "test"), counted)
    sealed = sealed_for_replica(CONTENT, seal)
    assert b"once upon" not in sealed and b"admin" not in sealed
    assert opened_from_master(sealed, seal) == CONTENT
    with pytest.raises(SealBroken):
        opened_from_master(sealed, Seal(derived_key("other secret", "test"), counted))
    with pytest.raises(ProtocolError):
        opened_from_master(seal.sealed(b"[]", "users and acls of a master"), seal)


def test_a_broken_file_leaves_no_password_behind(tmp_path: Path) -> None:
    AuthFiles(tmp_path, in_clear=True).save(CONTENT)
    path = tmp_path / "auth.json"
    clear = path.read_bytes()
    AuthFiles(tmp_path).load()
    for broken in (clear[:-2], clear.replace(b'"admin"', b'"\xff"'), clear[:-1] + b',"x":' + b"[" * 9000):
        path.write_bytes(broken)
        files = AuthFiles(tmp_path)
        assert files.load() == CONTENT  # from the backup
        files.save(CONTENT)
        assert not any(b"once upon" in one.read_bytes() for one in tmp_path.iterdir())

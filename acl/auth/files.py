"""Users and acls on the disk: ``config/auth.json``, and the key that seals its passwords.  An edge file.

RocketMQ keeps them in RocksDB (``config/users``, ``config/acls``) with passwords in clear.  Here they are JSON, written
like the broker's other tables, and only the broker's account may read them.
"""

import logging
import secrets
from pathlib import Path
from typing import Final

import msgspec

from acl.auth.document import AuthDocument, content_of, document_of
from acl.auth.secrets import KEY_BYTES, Seal
from acl.auth.tables import AuthContent
from sprocket.common.errors import ProtocolError, StoreError
from sprocket.common.files.config_file import ConfigFile
from sprocket.common.files.regular_file import read_regular

logger = logging.getLogger(__name__)

_DOCUMENT: Final = "auth.json"
_KEY: Final = "auth.key"
# RocketMQ's folder of users, beside ``acls``.
_ROCKSDB: Final = "users"
# Only the owner may read or write.
_MODE: Final = 0o600


def new_seal(key: bytes) -> Seal:
    """Return a seal that uses the machine's randomness."""
    return Seal(key, secrets.token_bytes)


class AuthFiles:
    """Files in `folder`.  `key_file` holds the key; without it ``auth.key`` beside the document does.

    With `in_clear` passwords are written unsealed, and a key is read only for passwords sealed before.
    """

    def __init__(self, folder: Path, key_file: Path | None = None, *, in_clear: bool = False) -> None:
        self.path = folder / _DOCUMENT
        self._file = ConfigFile(self.path, mode=_MODE)
        self._key_path = key_file or folder / _KEY
        self._in_clear = in_clear
        self._seal: Seal | None = None

    def load(self) -> AuthContent:
        """Return the saved content; empty without a file.  Raises StoreError, also if the key is missing or wrong.

        If the passwords are not in the form in which they must be written, the file is written again.
        """
        document = self._file.load(_decoded)
        if document is None:
            self._seal = self._read_key()
            if (self.path.parent / _ROCKSDB).is_dir():
                note = "users in RocksDB are not read; copy them with mqadmin copyUser and copyAcl while RocketMQ runs"
                logger.warning("event=rocksdb_users_ignored folder=%s note=%r", self.path.parent / _ROCKSDB, note)
            return AuthContent()
        self._seal = self._read_key(must_exist=any(user.sealed_password for user in document.users))
        try:
            content = content_of(document, self._seal)
        except ProtocolError as error:
            raise StoreError(f"{self.path}: {error.detail}") from None
        if document.users and document.has_clear_passwords() is not self._in_clear:
            self.save(content)
            logger.warning("event=passwords_rewritten path=%s in_clear=%s", self.path, self._in_clear)
        logger.info("event=auth_loaded users=%d acls=%d", len(content.users), len(content.acls))
        return content

    def save(self, content: AuthContent) -> None:
        """Replace the document durably.  Raises StoreError; then the file is unchanged."""
        seal = None if self._in_clear else self._own_seal()
        text = msgspec.json.format(msgspec.json.encode(document_of(content, seal)), indent=2)
        self._file.write(text)
        if self._in_clear or not content.users:
            return
        # Passwords in clear must not remain in the backup.
        backup = self._file.backup
        if backup.exists() and _may_say_a_password(read_regular(backup)):
            self._file.write(text)

    def _read_key(self, *, must_exist: bool = False) -> Seal | None:
        key = _read(self._key_path)
        if key is None:
            if must_exist:
                raise StoreError(f"{self._key_path}: missing, and {self.path} cannot be read without it; restore it")
            return None
        if len(key) != KEY_BYTES:
            raise StoreError(f"{self._key_path}: {len(key)} bytes, a key has {KEY_BYTES}")
        mode = self._key_path.stat().st_mode
        if mode & 0o077:
            logger.warning("event=key_file_open path=%s mode=%o note=%r", self._key_path, mode & 0o777, "chmod 600 it")
        return new_seal(key)

    def _own_seal(self) -> Seal:
        if self._seal is None:
            key = secrets.token_bytes(KEY_BYTES)
            ConfigFile(self._key_path, mode=_MODE).write(key)
            self._seal = new_seal(key)
            logger.info("event=key_made path=%s", self._key_path)
        return self._seal


def _decoded(content: bytes) -> AuthDocument:
    """Decode a document.  Raises ProtocolError."""
    try:
        return msgspec.json.decode(content, type=AuthDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(_DOCUMENT, str(error)) from None


def _read(path: Path) -> bytes | None:
    try:
        return read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from None


def _may_say_a_password(content: bytes) -> bool:
    """Return whether the content may reveal a password: assume so if it is broken."""
    try:
        return msgspec.json.decode(content, type=AuthDocument).has_clear_passwords()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True

"""Encryption of users' passwords in files and between replicas: AES-256-GCM.

A signature is an HMAC, so its check needs the password itself; a hash would not do.  Encrypted data is bound to its
owner, so that it cannot be moved to another user.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from typing import Final

from sprocket.common.errors import StoreError

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
# `random_bytes(size)`, from a source that nobody can guess.
RandomBytes = Callable[[int], bytes]


class SealBroken(StoreError):
    """Encrypted data was sealed with another key or for another owner, or was changed."""


class Seal:
    """Encryption and decryption with one key of `KEY_BYTES`."""

    def __init__(self, key: bytes, random_bytes: RandomBytes) -> None:
        # Here, because the library takes 9 MB of memory, and most servers have no users.
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(key)
        self._wrong_tag = InvalidTag
        self._random_bytes = random_bytes

    def sealed(self, content: bytes, belongs_to: str) -> bytes:
        """Encrypt `content`, bound to `belongs_to`."""
        nonce = self._random_bytes(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, belongs_to.encode())

    def opened(self, sealed: bytes, belongs_to: str) -> bytes:
        """Decrypt what `sealed` returned for the same `belongs_to`.  Raises SealBroken."""
        if len(sealed) < NONCE_BYTES + _TAG_BYTES:
            raise SealBroken(f"{belongs_to}: {len(sealed)} bytes are too few to be sealed")
        try:
            return self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], belongs_to.encode())
        except self._wrong_tag:
            raise SealBroken(f"{belongs_to}: sealed with another key, or changed since") from None

    def sealed_text(self, text: str, belongs_to: str) -> str:
        """Encrypt a text, as base64."""
        return base64.b64encode(self.sealed(text.encode(), belongs_to)).decode()

    def opened_text(self, sealed: str, belongs_to: str) -> str:
        """Decrypt what `sealed_text` returned.  Raises SealBroken."""
        try:
            return self.opened(base64.b64decode(sealed, validate=True), belongs_to).decode()
        except (binascii.Error, ValueError):
            raise SealBroken(f"{belongs_to}: no sealed text") from None


def derived_key(secret: str, purpose: str) -> bytes:
    """Return a key for one purpose, derived from a shared secret: HKDF-SHA256 of one block.  Source: RFC 5869."""
    extracted = hmac.digest(b"\0" * hashlib.sha256().digest_size, secret.encode(), "sha256")
    return hmac.digest(extracted, purpose.encode() + b"\x01", "sha256")

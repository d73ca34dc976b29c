"""Names of RocketMQ for names that other systems allow."""

import re
from hashlib import sha256
from typing import Final

_ILLEGAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_CHARS: Final = 100
_HASH_CHARS: Final = 8


def legal(name: str) -> str:
    """Return `name` if RocketMQ takes it, otherwise one like it that no other name has.

    A changed name ends with a hash of the whole one: ``celery@a.pidbox`` is ``celery_a_pidbox-59f1c30b``.
    """
    if name and len(name) <= _MAX_CHARS and not _ILLEGAL.search(name):
        return name
    return f"{_ILLEGAL.sub('_', name)[:_MAX_CHARS]}-{sha256(name.encode()).hexdigest()[:_HASH_CHARS]}"

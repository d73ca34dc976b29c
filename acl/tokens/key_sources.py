"""Where the keys that verify tokens come from: files, and issuers that publish theirs.  An edge file.

A file that changes is read again.  The keys of an issuer are fetched again when they are old, and when a token names an
unknown key, but not more often than `openIDKeyIdCacheMissRefreshSeconds`.  If a source fails, its old keys stay.
Source: OpenID Connect Discovery 1.0, 4 (the issuer's configuration must name that very issuer).
"""

import asyncio
import http.client
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from acl.tokens.key_fetch import Fetch, fetcher
from acl.tokens.settings import TokenSettings, path_of
from acl.tokens.verification_keys import MAX_FILE_BYTES, VerificationKey, public_keys, secret_keys
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError
from sprocket.common.files.regular_file import read_regular
from sprocket.remoting.tls.material import file_state

logger = logging.getLogger(__name__)

_DISCOVERY: Final = "/.well-known/openid-configuration"
# How long a source that never had keys waits for the next attempt, in s.
_FIRST_RETRY_S: Final = 5.0
# Keys that a trouble names.
_MAX_NAMED: Final = 5
_LOST: Final = "no longer has these keys"
FileState = tuple[int, int, int]
Parse = Callable[[bytes, str], tuple[VerificationKey, ...]]


class _Discovered(msgspec.Struct, frozen=True):
    issuer: str
    jwks_uri: str


@dataclass
class _KeyFile:
    path: Path
    parse: Parse
    keys: tuple[VerificationKey, ...] = ()
    state: FileState | None = None
    trouble: str = ""

    def read(self) -> None:
        """Read the keys.  Raises ConfigError."""
        self.state = file_state(self.path)
        try:
            content = read_regular(self.path, MAX_FILE_BYTES)
        except OSError as error:
            raise ConfigError(f"{self.path}: {error.strerror}") from None
        before, self.keys = self.keys, self.parse(content, str(self.path))
        self.trouble = _lost(before, self.keys)

    def look(self) -> bool:
        """Read the keys again if the file has changed; return whether they are new."""
        if file_state(self.path) == self.state:
            return False
        try:
            self.read()
        except ConfigError as error:
            self.trouble = f"cannot be read, the old keys stay: {error}"
            logger.warning("event=token_keys_kept file=%s reason=%r", self.path, str(error))
            return False
        logger.info("event=token_keys_read file=%s keys=%d", self.path, len(self.keys))
        return True


@dataclass
class _Issuer:
    name: str
    url: str  # empty: by discovery
    keys: tuple[VerificationKey, ...] = ()
    fetched_at: float | None = None  # of the last attempt, s of a clock that never steps back
    is_wanted: bool = True
    trouble: str = ""
    content: bytes = field(default=b"", repr=False)


def _lost(before: Sequence[VerificationKey], after: Sequence[VerificationKey]) -> str:
    """Return which keys a source no longer has; empty if none is missing."""
    known = {key.key_id for key in after}
    lost = [key.key_id or "(without an id)" for key in before if key.key_id not in known]
    return f"{_LOST}: {', '.join(lost[:_MAX_NAMED])}" if lost else ""


class KeySources:
    """All keys of one server, by issuer.  It belongs to the event loop's thread; fetches run in others.

    The constructor raises ConfigError if a file cannot be read.  An issuer that does not answer stops no start.
    """

    def __init__(self, settings: TokenSettings, clock: Clock, fetch: Fetch | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self._fetch = fetch or fetcher(settings)
        self._files: dict[str | None, list[_KeyFile]] = {}
        self._issuers: dict[str, _Issuer] = {}
        self._fetching: set[asyncio.Task[None]] = set()
        self.generation = 0  # rises when keys change
        self._add_file(None, settings.token_secret_key, secret_keys)
        self._add_file(None, settings.token_public_key, public_keys)
        for name, location in settings.issuers().items():
            if location and path_of(location) is not None:
                self._add_file(name, location, public_keys)
            else:
                self._issuers[name] = _Issuer(name, location)

    def _add_file(self, issuer: str | None, location: str, parse: Parse) -> None:
        path = path_of(location.strip()) if location.strip() else None
        if path is not None:
            file = _KeyFile(path, parse)
            file.read()
            self._files.setdefault(issuer, []).append(file)

    def is_issuer(self, name: str | None) -> bool:
        """Return whether `name` is an issuer with keys of its own."""
        return name is not None and (name in self._issuers or name in self._files)

    def candidates(self, issuer: str | None, algorithm: str, key_id: str | None) -> Sequence[VerificationKey]:
        """Return the keys that may have signed a token with this header; None is the issuer of the keys in files.

        If an issuer does not have the key, its keys are fetched again.
        """
        source = self._issuers.get(issuer or "")
        keys = source.keys if source else [key for file in self._files.get(issuer, ()) for key in file.keys]
        found = [
            key for key in keys
            if key.algorithm == algorithm and (key_id is None or key.key_id is None or key.key_id == key_id)
        ]  # fmt: skip
        if source is not None and not found:
            source.is_wanted = True
        return found

    def look(self) -> None:
        """Read changed files, and begin to fetch what is due.  Called about once a second."""
        for files in self._files.values():
            for file in files:
                if file.look():
                    self.generation += 1
        now = self._clock.monotonic()
        for source in self._issuers.values():
            if self._is_due(source, now):
                source.fetched_at, source.is_wanted = now, False
                task = asyncio.get_running_loop().create_task(self._refresh(source))
                self._fetching.add(task)
                task.add_done_callback(self._fetching.discard)

    def _is_due(self, source: _Issuer, now: float) -> bool:
        if source.fetched_at is None:
            return True
        age_s = now - source.fetched_at
        if not source.keys:
            return age_s >= _FIRST_RETRY_S
        settings = self._settings
        if age_s >= settings.open_id_cache_refresh_after_write_seconds:
            return True
        return source.is_wanted and age_s >= settings.open_id_key_id_cache_miss_refresh_seconds

    async def _refresh(self, source: _Issuer) -> None:
        try:
            keys, content = await asyncio.to_thread(self._fetched, source)
        except (OSError, ValueError, http.client.HTTPException, ConfigError, msgspec.MsgspecError) as error:
            logger.warning(
                "event=token_keys_kept issuer=%s keys=%d reason=%r", source.name, len(source.keys), str(error)
            )
            source.is_wanted = True
            kept = "the old keys stay" if source.keys else "it has no keys, so its tokens are refused"
            source.trouble = f"cannot be fetched, {kept}: {error}"
            return
        if content == source.content:
            source.trouble = source.trouble if source.trouble.startswith(_LOST) else ""
            return
        source.trouble = _lost(source.keys, keys)
        source.keys, source.content = keys, content
        self.generation += 1
        logger.info("event=token_keys_fetched issuer=%s keys=%d", source.name, len(keys))

    def _fetched(self, source: _Issuer) -> tuple[tuple[VerificationKey, ...], bytes]:
        url = source.url
        if not url:
            found = msgspec.json.decode(self._fetch(source.name.rstrip("/") + _DISCOVERY), type=_Discovered)
            if found.issuer != source.name:
                raise ValueError("its configuration is of another issuer")
            url = found.jwks_uri
        content = self._fetch(url)
        return public_keys(content, url), content

    def troubles(self) -> list[str]:
        """Return which sources cannot be read, or have lost keys since the change before, with why."""
        files = ((str(file.path), file.trouble) for files in self._files.values() for file in files)
        issuers = ((source.name, source.trouble) for source in self._issuers.values())
        return [f"{name} {trouble}" for name, trouble in (*files, *issuers) if trouble]

    @property
    def is_fetching(self) -> bool:
        """Whether keys of an issuer are on their way."""
        return bool(self._fetching)

    async def close(self) -> None:
        """Stop what is being fetched."""
        for task in list(self._fetching):
            task.cancel()
        await asyncio.gather(*self._fetching, return_exceptions=True)

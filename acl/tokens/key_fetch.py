"""Fetch of an issuer's keys by HTTP, bounded in bytes and time.  An edge file; it runs in a thread.

A redirect is refused: only the configured issuer says where its keys are.
"""

import http.client
import ssl
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from acl.tokens.settings import TokenSettings
from acl.tokens.verification_keys import MAX_FILE_BYTES
from sprocket.common.errors import ConfigError

_CHUNK_BYTES: Final = 1 << 16
# Return the content of a URL.  Raises OSError, ValueError or HTTPException.
Fetch = Callable[[str], bytes]


def fetcher(settings: TokenSettings) -> Fetch:
    """Return a fetch with the limits of `settings`.  Raises ConfigError for its authorities."""
    authorities = settings.open_id_issuer_trust_certs_file_path.strip()
    try:
        context = ssl.create_default_context(cafile=authorities or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"openIDIssuerTrustCertsFilePath: {authorities}: {error}") from None
    timeout_s = settings.open_id_http_read_timeout_millis / 1000
    needs_https = settings.open_id_require_issuers_use_https
    return lambda url: fetch(url, timeout_s, context, needs_https=needs_https)


def fetch(url: str, timeout_s: float, context: ssl.SSLContext, *, needs_https: bool) -> bytes:
    """Return the content of a URL: within `timeout_s` and `MAX_FILE_BYTES`, and without following a redirect.

    Raises OSError, ValueError or HTTPException.
    """
    parts = urlsplit(url)
    if parts.hostname is None or parts.scheme not in (("https",) if needs_https else ("https", "http")):
        raise ValueError(f"{url}: it is no URL that may be fetched")
    until = time.monotonic() + timeout_s
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"Accept": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"{url}: status {response.status}; redirects are not followed")
        content = bytearray()
        # Each part has a timeout of its own, so all together need one.
        while part := response.read1(_CHUNK_BYTES):
            content += part
            if len(content) > MAX_FILE_BYTES:
                raise ValueError(f"{url}: more than {MAX_FILE_BYTES} bytes")
            if time.monotonic() > until:
                raise TimeoutError(f"{url}: not read in {timeout_s} s")
        return bytes(content)
    finally:
        connection.close()

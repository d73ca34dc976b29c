"""Values of options that reads, streams and writes have in common: whole numbers, an account, TLS.

What only connections need is imported for them: each Python process of Spark imports this file.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sprocket.common.errors import ConfigError

if TYPE_CHECKING:
    from remoting.credentials import Credentials
    from remoting.tls_settings import TlsSettings

_TLS_FILES: Final = ("tlsTrustCertPath", "tlsClientCertPath", "tlsClientKeyPath")


def whole_number(given: Mapping[str, str], name: str, default: int, least: int, digits: int = 9) -> int:
    """A number of at most so many digits.  Raises ConfigError."""
    text = given.get(name, str(default))
    if not re.fullmatch(rf"\d{{1,{digits}}}", text) or int(text) < least:
        raise ConfigError(f"option {name!r}: {text!r} is not a whole number of at least {least}")
    return int(text)


def credentials(given: Mapping[str, str]) -> "Credentials | None":
    """`accessKey` and `secretKey`; None without them.  Raises ConfigError for one alone."""
    access, secret = given.get("accessKey"), given.get("secretKey")
    if bool(access) != bool(secret):
        raise ConfigError("options 'accessKey' and 'secretKey' belong together: give both or none")
    if not access or not secret:
        return None
    from remoting.credentials import Credentials

    return Credentials(access, secret)


def tls(given: Mapping[str, str]) -> "TlsSettings | None":
    """`useTLS` and its files; None for plain connections.  Raises ConfigError."""
    text = given.get("useTLS", "false").lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option 'useTLS': {given['useTLS']!r} is not one of true, false")
    files = {name: Path(given[name]) for name in _TLS_FILES if given.get(name)}
    if text == "false":
        if files:
            raise ConfigError(
                f"option {next(iter(files))!r} needs 'useTLS' to be true: certificates go with useTLS=true"
            )
        return None
    from remoting.tls_settings import TlsSettings

    trust, certificate, key = (files.get(name) for name in _TLS_FILES)
    return TlsSettings.for_client(trust, certificate, key)

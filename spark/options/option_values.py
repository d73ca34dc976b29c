"""Parsing of options that reads, streams and writes share.

Modules for connections are imported where they are used, because each Python process of Spark imports this file.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark.decode.columns import nearest
from sprocket.common.errors import ConfigError

if TYPE_CHECKING:
    from sprocket.remoting.credentials import Credentials
    from sprocket.remoting.tls.settings import TlsSettings

# Of numbers of bytes, milliseconds and messages.
MAX_DIGITS: Final = 18
_TLS_FILES: Final = (
    "tlsTrustCertPath",  # PEM of the authorities that verify servers; default: those of the system
    "tlsClientCertPath",  # PEM of the client's own certificate, for servers that ask for one
    "tlsClientKeyPath",
)
CONNECTION_OPTIONS: Final = (
    "namesrvAddr",  # host:port of name servers, several separated by ;
    "accessKey",
    "secretKey",
    "useTLS",  # true: every connection is TLS
    *_TLS_FILES,
)


def by_known_names(options: Mapping[str, str], known: Sequence[str], hidden: Sequence[str] = ()) -> dict[str, str]:
    """Return `options`, whose names may be in any case, with the names as spelled in `known`.

    Raises ConfigError for a name that is neither in `known` nor in `hidden`; the error does not list `hidden`.
    """
    spelling = {name.lower(): name for name in (*known, *hidden)}
    given: dict[str, str] = {}
    for name, value in options.items():
        spelled = spelling.get(name.lower())
        if spelled is None:
            raise ConfigError(f"unknown option {name!r}{nearest(name, known)}; known: {', '.join(known)}")
        given[spelled] = value
    return given


def one_of(given: Mapping[str, str], name: str, allowed: Sequence[str]) -> str:
    """Return the value of option `name` as spelled in `allowed`; default is the first.  Raises ConfigError."""
    text = given.get(name, allowed[0])
    for each in allowed:
        if each.lower() == text.lower():
            return each
    raise ConfigError(f"option {name!r}: {text!r} is not one of {', '.join(allowed)}")


def yes_or_no(given: Mapping[str, str], name: str, default: bool) -> bool:
    """Return the value of option `name`, true or false.  Raises ConfigError."""
    return one_of(given, name, ("true", "false")) == "true" if name in given else default


def whole_number(given: Mapping[str, str], name: str, default: int, minimum: int, digits: int = 9) -> int:
    """Return the value of option `name`, a number of at most `digits` digits.  Raises ConfigError."""
    text = given.get(name, str(default))
    if not re.fullmatch(rf"\d{{1,{digits}}}", text) or int(text) < minimum:
        allowed = f"a whole number of at least {minimum}, of at most {digits} digits"
        raise ConfigError(f"option {name!r}: {text!r} is not {allowed}")
    return int(text)


def name_servers(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses in `namesrvAddr`.  Raises ConfigError for a wrong address, and if there is none."""
    from sprocket.remoting.client import split_address

    addresses = tuple(part.strip() for part in re.split("[;,]", given.get("namesrvAddr", "")) if part.strip())
    try:
        for address in addresses:
            split_address(address)
    except ValueError as error:
        raise ConfigError(f"option 'namesrvAddr': {error}") from error
    if not addresses:
        fault = "is empty" if "namesrvAddr" in given else "is missing"
        raise ConfigError(f"option 'namesrvAddr' {fault}: host:port of a name server, several separated by ;")
    return addresses


def credentials(given: Mapping[str, str]) -> "Credentials | None":
    """Return the account of `accessKey` and `secretKey`, None without them.  Raises ConfigError if one is missing."""
    access, secret = given.get("accessKey"), given.get("secretKey")
    if bool(access) != bool(secret):
        raise ConfigError("options 'accessKey' and 'secretKey' belong together: give both or none")
    if not access or not secret:
        return None
    from sprocket.remoting.credentials import Credentials

    return Credentials(access, secret)


def tls(given: Mapping[str, str]) -> "TlsSettings | None":
    """Return the settings of `useTLS` and its files, None for plain connections.  Raises ConfigError."""
    files = {name: Path(given[name]) for name in _TLS_FILES if given.get(name)}
    if not yes_or_no(given, "useTLS", False):
        if files:
            raise ConfigError(
                f"option {next(iter(files))!r} needs 'useTLS' to be true: certificates go with useTLS=true"
            )
        return None
    from sprocket.remoting.tls.settings import TlsSettings

    trust, certificate, key = (files.get(name) for name in _TLS_FILES)
    return TlsSettings.for_client(trust, certificate, key)

"""The name in a verified certificate."""

from collections.abc import Iterable, Mapping
from typing import Final, cast

_COMMON_NAME: Final = "commonName"
# `SSLSocket.getpeercert`: ((("commonName", "x"),), ...)
_Names = Iterable[Iterable[tuple[str, str]]]


def common_name(certificate: Mapping[str, object] | None) -> str | None:
    """Return the subject's common name from `SSLSocket.getpeercert`; None without one.

    `ssl` returns nothing for a certificate that was not verified.  The last of several names is the most specific.
    """
    subject = cast(_Names, (certificate or {}).get("subject", ()))
    names = [value for part in subject for key, value in part if key == _COMMON_NAME]
    return names[-1] if names else None

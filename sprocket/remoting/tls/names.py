"""Who a verified certificate names."""

from collections.abc import Iterable, Mapping
from typing import Final, cast

_COMMON_NAME: Final = "commonName"
# `SSLSocket.getpeercert`: ((("commonName", "x"),), ...)
_Names = Iterable[Iterable[tuple[str, str]]]


def common_name(certificate: Mapping[str, object] | None) -> str | None:
    """The subject's common name in what `ssl` tells of a peer's certificate; None without one.

    `ssl` tells nothing of a certificate that was not verified.  Of several names the last one is the most specific.
    """
    subject = cast(_Names, (certificate or {}).get("subject", ()))
    names = [value for part in subject for key, value in part if key == _COMMON_NAME]
    return names[-1] if names else None

"""What a broker's answer to a signed request says about the account.  Pure.

Source of the texts: RocketMQ 5.3.3, `PlainPermissionManager.checkPerm`, `AuthorizationProvider`; our own in `acl/`.
"""

from typing import Final

# Refusals of a caller that has proved its identity and lacks a right.
_LACKS_A_RIGHT: Final = (
    "has no permission to access",
    "Need admin permission",
    "No default permission",
    "No permission for",
)


def is_proved(remark: str) -> bool:
    """Return whether a refusal says that the signature was right and only a permission is missing."""
    return any(text in remark for text in _LACKS_A_RIGHT)

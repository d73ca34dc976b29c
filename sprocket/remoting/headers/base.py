"""What every header struct is, and how it becomes the string map that travels.

On the wire every value is text: numbers in decimal, booleans as ``true`` and ``false``; an absent
field is null.  Source: RocketMQ 5.3.3, `RemotingCommand.makeCustomHeaderToNet`.
"""

from functools import cache
from typing import Annotated

import msgspec

# A peer's numbers are checked against the width that they have in Java, so that a later pack cannot fail.
Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Header(msgspec.Struct, rename="camel", gc=False):
    """Base of all header structs: snake_case here, the reference's camelCase on the wire."""


@cache
def _names(header_type: type[Header]) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(header_type))


def to_ext_fields(header: Header) -> dict[str, str]:
    """Return the header as the map of strings that travels; absent (None) fields are left out."""
    ext_fields = {}
    for attribute, wire_name in _names(type(header)):
        value = getattr(header, attribute)
        if value is None:
            continue
        if value is True:
            value = "true"
        elif value is False:
            value = "false"
        ext_fields[wire_name] = str(value)
    return ext_fields

"""Headers of requests that differ in few values: everything else is encoded once."""

from collections.abc import Mapping

import msgspec

from sprocket.remoting.codec.codec_json import encode_header


def request_format(code: int, fields: Mapping[str, str], formats: Mapping[str, bytes]) -> bytes:
    """Return the %-format of the JSON headers of requests of one code; the result is that of `encode_request`.

    `fields` are those of any such request.  `formats` has the %-format of each field whose value varies: ``b'"%d"'``
    for a number, ``b"%b"`` for the JSON of a text.  The arguments are their values in the order of `fields`, then the
    opaque.
    """
    document = msgspec.json.decode(encode_header(code, 0, 0, None, fields), type=dict[str, msgspec.Raw])
    raw = msgspec.json.decode(document["extFields"], type=dict[str, msgspec.Raw])
    members = [
        b'"%b":%b' % (name.encode(), formats.get(name) or bytes(value).replace(b"%", b"%%"))
        for name, value in raw.items()
    ]
    parts = []
    for name, value in document.items():
        text = bytes(value).replace(b"%", b"%%")
        if name == "extFields":
            text = b"{%b}" % b",".join(members)
        elif name == "opaque":
            text = b"%d"
        parts.append(b'"%b":%b' % (name.encode(), text))
    return b"{%b}" % b",".join(parts)

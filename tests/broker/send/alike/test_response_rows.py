"""Responses as rows are those that the format gives one by one."""

import numpy as np

from broker.send.alike.response_rows import response_rows
from sprocket.remoting.frames import JSON_PREFIXES, ResponseTemplate
from store.alike.columns import digits_of, hex_digits_of, rows_of, texts_of

POSITIONS, OFFSETS = np.array([15, 1 << 40, 300]), np.array([77, 10, 99])
KEYS, OPAQUES = [b"K1", b"K2", b"K3"], np.array([7, 0, 9])


def test_rows_are_the_formatted_responses() -> None:
    # A constant may hold what looks like a value's place.
    names = {"msgId": "%016X", "queueOffset": "%d", "key": "%b"}
    header_format = ResponseTemplate(0, names, {"MSG_REGION": "100%d %% %b"}).json_format
    offsets, opaques = digits_of(OFFSETS), digits_of(OPAQUES)
    assert offsets is not None and opaques is not None
    rows = response_rows(header_format, [hex_digits_of(POSITIONS), offsets, rows_of(KEYS), opaques])
    values = zip(POSITIONS.tolist(), OFFSETS.tolist(), KEYS, OPAQUES.tolist(), strict=True)
    headers = [header_format % some for some in values]
    assert texts_of(rows) == [JSON_PREFIXES[len(header)] + header for header in headers]

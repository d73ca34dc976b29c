"""Responses of one size as rows: what they have in common is written once, and each value by one copy for all."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from sprocket.remoting.framing import JSON, frame_prefix
from store.alike.columns import Octets, repeated

_PLACEHOLDER: Final = re.compile(rb"%(?:%|[0-9]*[a-zA-Z])")


def response_rows(json_format: bytes, columns: Sequence[Octets]) -> Octets:
    """Return the frames of responses without bodies, one a row.

    `json_format` is that of `ResponseTemplate`; `columns` are the texts of its arguments, each as rows.
    """
    row, gaps = _form(json_format, tuple(column.shape[1] for column in columns))
    rows = repeated(row, len(columns[0]))
    for gap, column in zip(gaps, columns, strict=True):
        rows[:, gap] = column
    return rows


@lru_cache(maxsize=64)
def _form(json_format: bytes, widths: Sequence[int]) -> tuple[bytes, list[slice]]:
    """Return a frame with gaps for values of these widths, and where the gaps are."""
    header, gaps, at = b"", list[slice](), 0
    for found in _PLACEHOLDER.finditer(json_format):
        header += json_format[at : found.start()]
        at = found.end()
        if found[0] == b"%%":
            header += b"%"
        else:
            width = widths[len(gaps)]
            gaps.append(slice(len(header), len(header) + width))
            header += bytes(width)
    header += json_format[at:]
    prefix = frame_prefix(JSON, len(header), 0)
    return prefix + header, [slice(len(prefix) + gap.start, len(prefix) + gap.stop) for gap in gaps]

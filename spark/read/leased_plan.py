"""Plan with leases on its segments, taken before its tasks start; a plan whose leases came too late is repeated."""

import logging
from typing import Final

from spark.files.segment_lease import SegmentLease, wants_lease
from spark.options.source_options import SourceOptions
from spark.read.plan import Planned, Span, plan
from spark.rows.filters import RowFilter
from sprocket.common.errors import StoreError

logger = logging.getLogger(__name__)

_TRIES: Final = 5

Tasks = list[tuple[Span, ...]]


def leased_plan(options: SourceOptions, rows: RowFilter) -> tuple[Planned, tuple[SegmentLease, ...]]:
    """Return what each task reads, and the leases on the segments.

    Raises as `spark.read.plan.plan`; StoreError if segments expire faster than they can be planned.
    """
    for _ in range(_TRIES):
        try:
            planned = plan(options, rows)
        except FileNotFoundError:
            continue
        leases = _leases(planned.tasks, options.reading.lease_ms)
        held = tuple(lease for lease in leases if lease.hold())
        if all(span.segment.path.exists() for task in planned.tasks for span in task):
            return planned, held
        logger.info("event=lease_too_late action=plan_again")
    raise StoreError(
        "segments expire while the query is planned; the broker removes them at fileReservedTime or when its disk is "
        "full: read a later time or another topic, or free disk space"
    )


def _leases(tasks: Tasks, lease_ms: int) -> list[SegmentLease]:
    first: dict[object, Span] = {}
    for task in tasks:
        for span in task:
            known = first.get(span.store)
            if known is None or span.segment.start < known.segment.start:
                first[span.store] = span
    stores = (span for span in first.values() if lease_ms and wants_lease(span.store.root))
    return [SegmentLease(span.store.root, span.segment.start, lease_ms) for span in stores]

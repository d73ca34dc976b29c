"""What the demo counts in a good run: ten flights, of which one was stored twice."""

from examples.demo.analysis import Counts

GOOD_COUNTS = Counts(
    records=11,
    distinct_in_log=10,
    acknowledged_not_in_log=0,
    in_log_not_acknowledged=0,
    in_log_not_received=0,
    received_not_in_log=0,
    received=13,
    distinct_received=10,
)

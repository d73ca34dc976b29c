"""Reads rows the slow, obvious way: what the data source must agree with."""

from datetime import UTC, datetime, timedelta

from tests.spark.store_builder import Row

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def default_columns(row: Row) -> dict[str, object]:
    """The default columns of `row`."""
    return {
        "topic": row.topic,
        "queueId": row.queue_id,
        "queueOffset": row.queue_offset,
        "physicalOffset": row.physical_offset,
        "bornTimestamp": moment(row.born_timestamp),
        "storeTimestamp": moment(row.store_timestamp),
        "tags": row.tags,
        "keys": row.keys,
        "body": row.body,
    }

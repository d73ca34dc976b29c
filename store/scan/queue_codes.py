"""Tags codes of a batch of records as ConsumeQueues hold them: hashes of tags, and due times of scheduled messages."""

import numpy as np

from sprocket.remoting.message.topic_names import SCHEDULE_TOPIC
from store.record.record import TagsCodes
from store.scan.columns import Integers
from store.scan.engine import tags_codes_of
from store.scan.record_batch import RecordBatch


def queue_codes_of(batch: RecordBatch, tags_codes: TagsCodes) -> Integers:
    """Return each record's tags code for the ConsumeQueue."""
    codes = tags_codes_of(batch, tags_codes)
    if SCHEDULE_TOPIC in batch.topics:
        for record in np.flatnonzero(batch.topic_index == batch.topics.index(SCHEDULE_TOPIC)).tolist():
            codes[record] = tags_codes.of(SCHEDULE_TOPIC, batch.properties(record), batch.store_timestamp(record))
    return codes

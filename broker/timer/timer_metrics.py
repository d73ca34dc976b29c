"""Number of waiting timer messages by topic, saved in ``config/timermetrics``.

Source: RocketMQ 5.3.3, `TimerMetrics`, `TimerMessageStore.addMetric`, `checkAndReviseMetrics`.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy

import msgspec

from broker.config.versioned_table import VersionedTable
from sprocket.common.clock import Clock
from sprocket.common.files.config_file import ConfigFile
from sprocket.remoting.bodies.topic import DataVersion
from sprocket.remoting.codec.fastjson import dumps, loads
from sprocket.remoting.codec.java_hash import java_hash_code
from sprocket.remoting.message.topic_names import LIGHT_PREFIX, SYSTEM_TOPIC_PREFIX


class TimerMetric(msgspec.Struct, rename="camel"):
    """Number of messages that wait for one topic."""

    count: int = 0
    time_stamp: int = 0  # ms, last change


class TimerMetricsTable(msgspec.Struct, rename="camel"):
    """Content of timermetrics, and the answer to GET_TIMER_METRICS."""

    data_version: DataVersion
    timing_count: dict[str, TimerMetric] = {}


class TimerMetrics(VersionedTable):
    """Counts by topic."""

    def __init__(self, file: ConfigFile, clock: Clock) -> None:
        super().__init__(file, clock)
        self.by_topic: dict[str, TimerMetric] = {}
        # Messages that entered and left the wheel since the start, by topic.
        self.entered: Counter[str] = Counter()
        self.left: Counter[str] = Counter()

    def decode(self, content: bytes) -> None:
        """Take over the counts of the file.  Raises ProtocolError."""
        table = loads(content, TimerMetricsTable)
        self.by_topic, self.data_version = table.timing_count, table.data_version

    def add(self, topic: str, change: int) -> None:
        """Add `change` to the number of messages that wait for `topic`, because they entered or left the wheel."""
        if change > 0:
            self.entered[topic] += change
        else:
            self.left[topic] -= change
        self._add(topic, change)

    def _add(self, topic: str, change: int) -> None:
        now_ms = self._clock.wall_ms()
        metric = self.by_topic.get(topic)
        if metric is None:
            metric = self.by_topic[topic] = TimerMetric()
        metric.count += change
        metric.time_stamp = now_ms
        self.data_version.next(now_ms)
        self.changes += 1

    def replace(self, table: TimerMetricsTable) -> None:
        """Replace the counts by a master's, unless their versions are equal."""
        if table.data_version != self.data_version:
            self.by_topic = table.timing_count
            self.data_version = table.data_version
            self.changes += 1

    def clean(self, is_there: Callable[[str], bool]) -> None:
        """Forget topics that no longer exist, except system topics."""
        gone = [
            topic
            for topic in self.by_topic
            if not is_there(topic) and not topic.startswith((SYSTEM_TOPIC_PREFIX, LIGHT_PREFIX))
        ]
        for topic in gone:
            del self.by_topic[topic]
        if gone:
            self.data_version.next(self._clock.wall_ms())
            self.changes += 1

    def revise(self, counts: Mapping[int, int], small_threshold: int) -> None:
        """Set small counts to what was counted in the timer log by hash of the topic.

        Topics that share a hash keep theirs, because they cannot be told apart.
        """
        shared = Counter(map(java_hash_code, self.by_topic))
        for topic, metric in self.by_topic.items():
            code = java_hash_code(topic)
            count = counts.get(code, 0)
            if shared[code] == 1 and metric.count < small_threshold and metric.count != count:
                self._add(topic, count - metric.count)

    def _content(self) -> Callable[[], bytes]:
        content = self.encode()  # here, because counts change in place
        return lambda: content

    def encode(self) -> bytes:
        """Return the answer to GET_TIMER_METRICS."""
        return dumps(TimerMetricsTable(copy(self.data_version), self.by_topic))

"""Traffic statistics for operators: rates by topic, by group, of pops and of the whole broker, and daily totals.

Source: RocketMQ 5.3.3, `BrokerStats`, `BrokerStatsManager`.
"""

from collections.abc import Callable, Mapping

from broker.core import BrokerCore
from broker.metrics.statistics import SAMPLE_PERIOD_S, DailyTotals, RateWindow
from broker.periodic import Periodic
from broker.service import Service
from sprocket.common.figures import Declared


class Traffic(Service):
    """Sampler of the counters of the store, of pulls and of pops."""

    def __init__(self, core: BrokerCore, pop_counts: Mapping[str, Callable[[], Mapping[str, int]]]) -> None:
        """`pop_counts` are the counters of pops, by name."""
        clock, store, flow = core.clock, core.store, core.flow
        cluster = core.config.broker.broker_cluster_name
        self._store, self._flow, self._topics = store, flow, core.topics

        def put() -> int:
            return store.statistics.put_messages

        def got() -> int:
            return flow.out_messages

        self.totals = DailyTotals(clock, put, got)
        self.put_rates = RateWindow(clock, self.puts_by_topic)
        self.consume_rates = RateWindow(clock, core.offsets.totals)
        # Sizes, messages sent back and dead letters, by RocketMQ's names (`Stats`).
        self.more_rates = {
            "TOPIC_PUT_SIZE": RateWindow(clock, flow.in_bytes),
            "GROUP_GET_SIZE": RateWindow(clock, flow.out_bytes_by_key),
            "SNDBCK_PUT_NUMS": RateWindow(clock, flow.returned_by_key),
            "DLQ_PUT_NUMS": RateWindow(clock, flow.dead_letters_by_key),
        }
        self.pop_rates = {name: RateWindow(clock, counts) for name, counts in pop_counts.items()}

        # Rates of the whole broker, under its cluster's name.
        self.broker_rates = {
            "BROKER_PUT_NUMS": RateWindow(clock, lambda: {cluster: put()}),
            "BROKER_GET_NUMS": RateWindow(clock, lambda: {cluster: got()}),
        }

    def figures(self) -> list[Declared]:
        """Return the daily totals."""
        return self.totals.figures()

    def periodic(self) -> list[Periodic]:
        """Return the periodic sampling."""
        return [Periodic("statistics", SAMPLE_PERIOD_S, self.sample)]

    def puts_by_topic(self) -> dict[str, int]:
        """Return the messages ever put to each topic, without light topics, which hold messages of other topics."""
        puts: dict[str, int] = {}
        for topic, queue_id in self._store.usual_queues():
            puts[topic] = puts.get(topic, 0) + self._store.max_offset(topic, queue_id)
        return puts

    def sample(self) -> None:
        """Sample all counters."""
        more = (*self.pop_rates.values(), *self.broker_rates.values(), *self.more_rates.values())
        for rates in (self.put_rates, self.consume_rates, *more):
            rates.sample()
        self._flow.forget_gone(self._topics.__contains__)
        self.totals.sample()

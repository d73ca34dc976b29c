"""Any sequence of comings and goings, against a model that knows only who registered last where.

The model: a broker is one address with one name and id; it is there from its registration until the newest
connection that it was heard of over closes or says that it leaves, or until it was silent too long.
"""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from namesrv.registration import note_alive
from namesrv.route_table import RouteInfo
from namesrv.unregistration import close_channel, expire, unregister
from tests.namesrv.reports import CLUSTER, Reports, body, header
from tests.tiers import examples

# Address -> name and id.  Places are not shared, so that the model needs no rule for that.
PLACES = {f"10.0.0.{i}:1": (f"broker-{'ab'[i // 3]}", i % 3) for i in range(6)}
TIMEOUT_MS = 10

ADDRS = st.sampled_from(sorted(PLACES))
CHANNELS = st.integers(1, 8)
STEPS = st.one_of(
    st.tuples(st.just("register"), ADDRS, CHANNELS),
    st.tuples(st.just("unregister"), ADDRS, CHANNELS),
    st.tuples(st.just("heard"), ADDRS, CHANNELS),
    st.tuples(st.just("close"), st.just(""), CHANNELS),
    st.tuples(st.just("wait"), st.just(""), CHANNELS),
    st.tuples(st.just("scan"), st.just(""), CHANNELS),
)


@dataclass
class Seen:
    channel_id: int
    at_ms: int


class Model:
    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}

    def step(self, action: str, addr: str, channel_id: int, now_ms: int) -> None:
        known = self.seen.get(addr)
        if action == "register" or (action == "heard" and known):
            newest = max(channel_id, known.channel_id) if known else channel_id
            self.seen[addr] = Seen(newest, now_ms)
        elif action == "unregister" and known and channel_id >= known.channel_id:
            del self.seen[addr]
        elif action == "close":
            self.seen = {a: s for a, s in self.seen.items() if s.channel_id != channel_id}
        elif action == "scan":
            self.seen = {a: s for a, s in self.seen.items() if s.at_ms + TIMEOUT_MS >= now_ms}

    def groups(self) -> dict[str, dict[int, str]]:
        found: dict[str, dict[int, str]] = {}
        for addr in self.seen:
            name, broker_id = PLACES[addr]
            found.setdefault(name, {})[broker_id] = addr
        return found


def apply(reports: Reports, action: str, addr: str, channel_id: int) -> None:
    name, broker_id = PLACES.get(addr, ("", 0))
    if action == "register":
        reports.now_ms -= 1  # registering advances it
        reports.register(header(name, addr, broker_id, acting=True, timeout_ms=TIMEOUT_MS), body(), channel_id)
    elif action == "unregister":
        unregister(reports.table, CLUSTER, name, addr, channel_id)
    elif action == "heard":
        note_alive(reports.table, CLUSTER, addr, channel_id, reports.now_ms)
    elif action == "close":
        close_channel(reports.table, channel_id)
    elif action == "scan":
        expire(reports.table, reports.now_ms)


def check_tables_agree(table: RouteInfo) -> None:
    names = {live.broker_name for live in table.live.values()}
    assert set(table.brokers) == names
    assert table.clusters == ({CLUSTER: names} if names else {})
    for topic, queues in table.topics.items():
        assert queues, topic
        assert set(queues) <= names
    for group in table.brokers.values():
        assert group.broker_addrs
        for broker_id, addr in group.broker_addrs.items():
            assert table.live[CLUSTER, addr].broker_id == broker_id


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_only_what_names_the_newest_incarnation_removes_a_broker(steps: list[tuple[str, str, int]]) -> None:
    reports, model = Reports(), Model()
    for action, addr, channel_id in steps:
        reports.now_ms += 4 if action == "wait" else 1
        apply(reports, action, addr, channel_id)
        model.step(action, addr, channel_id, reports.now_ms)
        assert {name: group.broker_addrs for name, group in reports.table.brokers.items()} == model.groups()
        check_tables_agree(reports.table)

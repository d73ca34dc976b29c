"""Which messages a queue gets, and the names that RocketMQ has for AMQP's."""

import pytest

pytest.importorskip("kombu", reason="kombu is not installed: pip install 'sprocket-mq[celery]'")

from sprocket.contrib.kombu.bindings import DIRECT, FANOUT, TOPIC, Binding, QueueBindings, publish_topic
from sprocket.contrib.kombu.names import topic_of
from sprocket.contrib.kombu.payload import MAX_DELAY_MS, ForeignMessage, decoded, encoded, is_expired
from sprocket.contrib.names import legal


def test_a_legal_name_stays_and_any_other_gets_a_hash_of_its_own() -> None:
    assert legal("celery") == "celery"
    assert legal("celery@a.pidbox") != legal("celery.a.pidbox")
    assert legal("a.b").startswith("a_b-")
    assert legal("a.b") == legal("a.b")
    assert len(legal("x" * 500)) <= 120
    assert legal("x" * 500) != legal("x" * 501)


@pytest.mark.parametrize(
    ("pattern", "key", "is_match"),
    [
        ("t.*", "t.1", True),
        ("t.*", "t", False),
        ("t.*", "t.1.2", False),
        ("t.#", "t.1.2", True),
        ("t.#", "t", True),
        ("#", "any.thing", True),
        ("*.b", "a.b", True),
        ("a+b", "a+b", True),
        ("a+b", "aab", False),
    ],
)
def test_patterns_of_topic_exchanges(pattern: str, key: str, is_match: bool) -> None:
    assert Binding("e", TOPIC, pattern).matches(key) is is_match


def test_exact_keys_are_tags_and_patterns_are_filtered_by_the_client() -> None:
    bindings = QueueBindings("q")
    bindings.add(Binding("direct", DIRECT, "b"))
    bindings.add(Binding("direct", DIRECT, "a"))
    bindings.add(Binding("events", TOPIC, "task.#"))
    assert bindings.subscriptions() == {"direct": "a || b", "events": "*", "kombu-default": "q"}
    assert bindings.wants("direct", "a")
    assert not bindings.wants("direct", "c")
    assert bindings.wants("events", "task.sent")
    assert not bindings.wants("events", "worker.online")
    assert bindings.wants("", "q")


def test_a_fanout_exchange_sends_all_keys() -> None:
    bindings = QueueBindings("q")
    bindings.add(Binding("news", FANOUT, ""))
    assert bindings.subscriptions("p-") == {"p-news": "*", "p-kombu-default": "q"}
    assert bindings.wants("news", "whatever")


def test_a_queue_with_an_exchange_of_its_name_gets_the_default_exchange_through_it() -> None:
    bindings = QueueBindings("celery")
    bindings.add(Binding("celery", DIRECT, "celery"))
    assert bindings.subscriptions() == {"celery": "celery"}
    assert publish_topic("", "celery", {"celery"}) == "celery"
    assert publish_topic("", "celery", set()) == topic_of("")
    assert bindings.wants("", "celery")


def _payload(**headers: object) -> dict[str, object]:
    return {
        "body": "b",
        "headers": headers,
        "properties": {"delivery_info": {"exchange": "", "routing_key": "q"}, "priority": 3},
    }


def test_an_eta_is_a_time_of_delivery_within_what_brokers_take() -> None:
    soon = encoded("t", _payload(eta="2026-01-01T00:00:10"), "q", 1_767_225_600_000, has_priority=True)
    assert soon.deliver_at_ms == 1_767_225_610_000
    assert soon.priority is None
    far = encoded("t", _payload(eta="2027-01-01T00:00:00+00:00"), "q", 1_767_225_600_000, has_priority=False)
    assert far.deliver_at_ms == 1_767_225_600_000 + MAX_DELAY_MS
    past = encoded("t", _payload(eta="2025-01-01T00:00:00"), "q", 1_767_225_600_000, has_priority=True)
    assert (past.deliver_at_ms, past.priority) == (None, 3)
    assert encoded("t", _payload(eta="soon", id="7"), "q", 0, has_priority=False).keys == "7"


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"properties": {}}', b"[" * 100_000])
def test_a_message_that_kombu_did_not_send_is_foreign(body: bytes) -> None:
    with pytest.raises(ForeignMessage):
        decoded(body)


def test_the_shorter_of_both_times_to_live_counts() -> None:
    payload = decoded(encoded("t", _payload(), "q", 0, has_priority=False).body)
    assert not is_expired(payload, 0, 10_000, None)
    assert is_expired(payload, 0, 10_000, 5_000)
    payload["properties"]["expiration"] = "2000"
    assert is_expired(payload, 0, 2_000, 5_000)
    payload["properties"]["expiration"] = "never"
    assert not is_expired(payload, 0, 2_000, None)

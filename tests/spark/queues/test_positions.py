"""Positions: their JSON forms, what is refused and by which key, and one text for equal positions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.queues.positions import (
    EARLIEST,
    LATEST,
    QueueId,
    assigned_queues,
    from_queues,
    offsets_option,
    positions_object,
    positions_of,
    queues_of,
)
from sprocket.common.errors import ConfigError

A0, A1, B0 = QueueId("a", "T", 0), QueueId("a", "T", 1), QueueId("b", "T", 0)


@pytest.mark.parametrize(("text", "offset"), [("earliest", EARLIEST), (" Latest ", LATEST)])
def test_named_offsets_hold_for_every_queue(text: str, offset: int) -> None:
    assert offsets_option(text, "startingOffsets", 7).of(A0) == offset


def test_json_without_brokers_holds_for_every_broker() -> None:
    option = offsets_option('{"T": {"0": 5, "1": -1}}', "startingOffsets", EARLIEST)
    assert [option.of(queue) for queue in (A0, A1, B0)] == [5, LATEST, 5]
    assert option.of(QueueId("a", "Other", 0)) == EARLIEST


def test_json_with_brokers_holds_for_the_broker_named() -> None:
    option = offsets_option('{"a": {"T": {"0": 5}}}', "endingOffsets", LATEST)
    assert [option.of(queue) for queue in (A0, A1, B0)] == [5, LATEST, LATEST]


def test_queues_that_nobody_reads_are_named() -> None:
    option = offsets_option('{"a": {"T": {"0": 5, "9": 1}}, "c": {"T": {"0": 1}}}', "startingOffsets", EARLIEST)
    with pytest.raises(ConfigError, match=r"'startingOffsets' names queues .*: a/T/9, c/T/0"):
        option.check_names({A0: 1, A1: 1})
    with pytest.raises(ConfigError, match="not read: X/0"):
        offsets_option('{"X": {"0": 5}}', "startingOffsets", EARLIEST).check_names({A0: 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("newest", "'newest' is not earliest, latest, or JSON"),
        ("[]", "must be an object"),
        ('{"T": 5}', "'T' must hold an object"),
        ('{"T": {"0": 1.5}}', "topic 'T', queue 0: 1.5 is no queue offset"),
        ('{"T": {"0": true}}', "topic 'T', queue 0: True is no queue offset"),
        ('{"T": {"0": -3}}', "-3 is no queue offset .-2 is earliest, -1 latest"),
        ('{"T": {"0": 9223372036854775808}}', "is no queue offset"),
        ('{"T": {"x": 1}}', "topic 'T': 'x' is no queue id"),
        ('{"T": {"-1": 1}}', "'-1' is no queue id"),
        ('{"T": {"2147483648": 1}}', "is no queue id"),
        ('{"T": {"0": 1, "0": 2}}', "the key '0' stands there twice"),
        ('{"T": {"0": 1, "00": 2}}', "names a queue twice"),
        ('{"a": {"T": {"0": 1}}, "T": {"0": 1}}', "'T' has queues, 'a' has topics"),
        ('{"a": {"T": {"0": {}}}}', "is no queue offset"),
        ("[" * 100_000, "is not earliest"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        offsets_option(text, "endingOffsets", LATEST)
    assert "option 'endingOffsets'" in str(caught.value)


def test_assign() -> None:
    assert assigned_queues('{"T": [0, 2], "U": ["1"]}') == {"T": frozenset({0, 2}), "U": frozenset({1})}
    for text, message in [("{}", "no topic"), ('{"T": []}', "'T' needs a list"), ('{"T": [0, 0]}', "twice"),
                          ('{"T": [-1]}', "no queue id"), ('{"T": [true]}', "no queue id")]:  # fmt: skip
        with pytest.raises(ConfigError, match=message):
            assigned_queues(text)


def test_kept_positions_have_no_names_for_offsets() -> None:
    with pytest.raises(ConfigError, match="topic 'T', queue 0: -1"):
        positions_of({"a": {"T": {"0": -1}}})
    assert positions_of({"a": {}}) == {"a": {}}


def _text(positions: dict[str, dict[str, dict[int, int]]]) -> str:
    return json.dumps(positions_object(positions), separators=(",", ":"))


def test_equal_positions_have_one_text() -> None:
    first = {"b": {"T": {10: 1, 9: 2}}, "a": {}}
    second = {"a": {}, "b": {"T": {9: 2, 10: 1}}}
    assert _text(first) == _text(second) == '{"a":{},"b":{"T":{"9":2,"10":1}}}'


names = st.text(min_size=1, max_size=8)
offsets = st.integers(0, 2**63 - 1)
queues = st.dictionaries(st.integers(0, 2**31 - 1), offsets, min_size=1, max_size=4)


@given(st.dictionaries(names, st.dictionaries(names, queues, max_size=3), max_size=3))
def test_what_is_written_is_read_back(positions: dict[str, dict[str, dict[int, int]]]) -> None:
    text = _text(positions)
    assert positions_of(json.loads(text)) == positions
    assert _text(positions_of(json.loads(text))) == text
    assert from_queues(queues_of(positions), positions) == {
        broker: {topic: found for topic, found in topics.items() if found} for broker, topics in positions.items()
    }

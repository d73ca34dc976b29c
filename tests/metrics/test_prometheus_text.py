"""The page for Prometheus: names, escapes, histograms."""

import pytest

from sprocket.common.next_turn import at_once
from sprocket.metrics.declared import Kind, Reading
from sprocket.metrics.distribution import Distribution
from sprocket.metrics.prometheus_text import exported_name, rendered
from tests.metrics.prometheus_page import parse


@pytest.mark.parametrize(
    ("name", "kind", "unit", "exported"),
    [
        ("rocketmq_rpc_latency", Kind.HISTOGRAM, "milliseconds", "rocketmq_rpc_latency_milliseconds"),
        ("rocketmq_finish_message_latency", Kind.HISTOGRAM, "ms", "rocketmq_finish_message_latency_milliseconds"),
        ("rocketmq_storage_flush_behind_bytes", Kind.GAUGE, "bytes", "rocketmq_storage_flush_behind_bytes"),
        ("rocketmq_messages_in_total", Kind.COUNTER, "", "rocketmq_messages_in_total"),
        ("request", Kind.COUNTER, "", "request_total"),
        ("request_latency", Kind.HISTOGRAM, "us", "request_latency_microseconds"),
        ("odd name", Kind.GAUGE, "", "odd_name"),
    ],
)
def test_exported_name(name: str, kind: Kind, unit: str, exported: str) -> None:
    assert exported_name(name, kind, unit) == exported


def test_histogram_is_cumulative() -> None:
    sizes = Distribution((10, 20))
    for value in (10, 11, 20, 21):
        sizes.add(value)
    reading = Reading("sizes", Kind.HISTOGRAM, "says", "", [({"topic": "T"}, sizes)])
    family = parse(at_once(rendered(reading)).decode())["sizes"]
    assert family.kind == "histogram"
    assert [(labels.get("le"), value) for _, labels, value in family.samples] == [
        ("10.0", 1.0), ("20.0", 3.0), ("+Inf", 4.0), (None, 4.0), (None, 62.0),
    ]  # fmt: skip


def test_values_of_labels_are_escaped() -> None:
    reading = Reading("odd", Kind.GAUGE, "says", "", [({"topic": 'a"b\\c\nd', "odd-name": "x"}, 1)])
    (line,) = [line for line in at_once(rendered(reading)).decode().splitlines() if not line.startswith("#")]
    assert line == 'odd{odd_name="x",topic="a\\"b\\\\c\\nd"} 1.0'


def test_metric_without_values_is_left_out() -> None:
    assert at_once(rendered(Reading("none", Kind.GAUGE, "says", "", []))) == b""

"""What follows the bodies: lengths, topics and properties of records that differ in one way."""

from dataclasses import replace
from pathlib import Path

import pytest

from spark.decode.columns import COLUMN_TYPES
from tests.spark.conftest import read_rows
from tests.spark.naive_reader import default_columns
from tests.spark.store_builder import Row, StoreBuilder

V6 = bytes(15) + b"\x01"


def alike(index: int) -> Row:
    properties = {"UNIQ_KEY": f"{index:032X}", "KEYS": f"key-{index}", "TAGS": f"tag-{index % 3}", "W": "1"}
    return Row(topic=f"topic-{index % 4}", body=b"x" * (index * 37 % 300), properties=properties)


@pytest.mark.parametrize(
    "odd",
    [
        alike(5),
        replace(alike(5), version=2),
        replace(alike(5), store_host=V6, born_host=V6),
        replace(alike(5), topic="T" * 100),
        replace(alike(5), topic="T" * 2),  # lengths that look like separators
        replace(alike(5), topic="T"),
        replace(alike(5), properties={}),
        replace(alike(5), properties={**alike(5).properties, "long": "v" * 3000}),
        replace(alike(5), properties={"TAGS": "tag-9", "KEYS": "a\x01b"}),
    ],
    ids=["none", "V2", "IPv6", "topic of 100", "topic of 2", "topic of 1", "no properties", "long", "another order"],
)
@pytest.mark.parametrize("at", [0, 39])
def test_one_record_among_others_that_are_alike(tmp_path: Path, odd: Row, at: int) -> None:
    builder = StoreBuilder(tmp_path)
    builder.extend(odd if index == at else alike(index) for index in range(40))
    builder.write()
    assert read_rows(tmp_path) == [default_columns(row) for row in builder.rows]
    some = [default_columns(row) for row in builder.rows if row.topic == "topic-1"]
    assert read_rows(tmp_path, topics=frozenset({"topic-1"})) == some
    every = read_rows(tmp_path, columns=list(COLUMN_TYPES))
    for name in ("queueOffset", "msgId", "bodySize"):  # one column alone
        assert [row[name] for row in read_rows(tmp_path, columns=[name])] == [row[name] for row in every]

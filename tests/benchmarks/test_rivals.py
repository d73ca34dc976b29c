"""The comparison with other clients runs to its table, here with our client alone."""

import re

import pytest

from benchmarks.client.rivals.run import main


def test_the_comparison_prints_what_each_way_costs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--count", "300", "--rounds", "1"])
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.startswith("| Sprocket")]
    assert [row.split("|")[1].strip() for row in rows] == ["Sprocket, `send_many`", "Sprocket, `auto_batch`"]
    for row in rows:
        assert re.fullmatch(r"\|[^|]+(\| [\d,.]+ ){4}\|", row)
        assert "| 0.0 |" not in row

"""Makes ``tests/broker/data/sql-verdicts.jsonl``: random filters and messages with the verdicts of RocketMQ 5.3.3.

``python -m tests.broker.filter.make_verdicts`` needs Java and Maven and takes half a minute.  Every line is
[expression, encoded properties, verdict].
"""

import json
from collections import Counter
from pathlib import Path

from tests.broker.filter.cases import Generator, reference_verdicts

TARGET = Path(__file__).resolve().parents[1] / "data" / "sql-verdicts.jsonl"
_SEED = 92
_TRIED = 12_000
# So many of each are kept: random expressions are refused more often than not.
_KEPT = {"TRUE": 550, "FALSE": 450, "NULL": 400, "ERROR": 250, "REFUSED": 350}


def main() -> None:
    """Write the file again."""
    generator = Generator(_SEED)
    cases = [generator.case() for _ in range(_TRIED)]
    kept: Counter[str] = Counter()
    lines = []
    for case, verdict in zip(cases, reference_verdicts(cases), strict=True):
        kept[verdict] += 1
        if kept[verdict] <= _KEPT[verdict]:
            lines.append(json.dumps([case.expression, case.properties, verdict]) + "\n")
    TARGET.write_text("".join(lines))
    print(f"{TARGET}: {len(lines)} cases, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()

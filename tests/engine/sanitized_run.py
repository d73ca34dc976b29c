"""Run the engine's fuzz targets on modules that were compiled elsewhere: ``sanitized_run FOLDER SECONDS``.

For `test_sanitizers`, in a process of its own: FOLDER has the modules with the sanitizers in them.
"""

import sys

import sprocket.engine

folder, seconds = sys.argv[1], float(sys.argv[2])
sprocket.engine.__path__.insert(0, folder)

from sprocket.engine import (  # noqa: E402 - from the folder
    acks,
    client_sends,
    framing,
    header_reader,
    pulls,
    reads,
    record_filters,
    records,
    scan,
    sends,
    timer_units,
)
from tests.fuzz.engine_ack_targets import ENGINE_ACK_TARGETS  # noqa: E402
from tests.fuzz.engine_client_targets import ENGINE_CLIENT_TARGETS  # noqa: E402
from tests.fuzz.engine_filter_targets import ENGINE_FILTER_TARGETS  # noqa: E402
from tests.fuzz.engine_pull_targets import ENGINE_PULL_TARGETS  # noqa: E402
from tests.fuzz.engine_read_targets import ENGINE_READ_TARGETS  # noqa: E402
from tests.fuzz.engine_send_targets import ENGINE_SEND_TARGETS  # noqa: E402
from tests.fuzz.engine_targets import ENGINE_TARGETS  # noqa: E402
from tests.fuzz.engine_timer_targets import ENGINE_TIMER_TARGETS  # noqa: E402
from tests.fuzz.engine_wire_targets import ENGINE_WIRE_TARGETS  # noqa: E402
from tests.fuzz.mutation_run import run_for  # noqa: E402

for module in (
    acks, client_sends, framing, header_reader, pulls, reads, record_filters, records, scan, sends, timer_units,
):  # fmt: skip
    assert str(module.__file__).startswith(folder), module.__file__
for target in (
    *ENGINE_TARGETS, *ENGINE_WIRE_TARGETS, *ENGINE_SEND_TARGETS, *ENGINE_READ_TARGETS, *ENGINE_PULL_TARGETS,
    *ENGINE_CLIENT_TARGETS, *ENGINE_ACK_TARGETS, *ENGINE_FILTER_TARGETS, *ENGINE_TIMER_TARGETS,
):  # fmt: skip
    for seed in target.seeds:
        target.run(seed)
    run = run_for(target, seconds, seed=1, memory_every=1 << 40)
    assert not run.findings, run.findings
    print(f"{target.name}: {run.inputs} inputs")

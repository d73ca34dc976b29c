"""Which tests run when, and which may run a second time: tables by folder, checked by `test_tiers.py`.

``--tier quick`` is `make test`, ``--tier all`` is `make test ALL=1`; pytest without the option runs what it is given.
docs/testing.md explains the tiers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath
from typing import Final, TypeVar

T = TypeVar("T")


class Tier(Enum):
    """The command that runs a test file first."""

    QUICK = "make test"
    FULL = "make test ALL=1"
    LINT = "make lint"


@dataclass(frozen=True)
class Place:
    """A folder's or file's tier; `unsteady`, if not empty, is the reason why CI runs its failed tests once more."""

    tier: Tier
    unsteady: str = ""


_PROCESSES: Final = "real processes beside others on shared cores"
_CLIENTS: Final = "real clients and brokers with clocks of their own, beside others on shared cores"
_SPARK: Final = "a JVM beside others on shared cores"

_QUICK: Final = Place(Tier.QUICK)
_QUICK_PROCESSES: Final = Place(Tier.QUICK, _PROCESSES)
_FULL_PROCESSES: Final = Place(Tier.FULL, _PROCESSES)
_QUICK_CLIENT: Final = Place(Tier.QUICK, _CLIENTS)
_FULL_CLIENTS: Final = Place(Tier.FULL, _CLIENTS)
_QUICK_SPARK: Final = Place(Tier.QUICK, _SPARK)
_FULL_SPARK: Final = Place(Tier.FULL, _SPARK)

_FOLDERS: Final = {
    "tests": _QUICK,
    "tests/acl": _QUICK,
    "tests/benchmarks": _QUICK,
    "tests/broker": _QUICK,
    "tests/chaos": _FULL_PROCESSES,
    "tests/checkers": _QUICK,
    "tests/sprocket_cli": _QUICK_PROCESSES,
    "tests/client": _QUICK_PROCESSES,
    "tests/combinations": _FULL_PROCESSES,
    "tests/common": _QUICK,
    "tests/common/processes": _QUICK_PROCESSES,
    "tests/compat": _FULL_CLIENTS,
    "tests/contrib": _QUICK_PROCESSES,
    "tests/controller": _QUICK,
    "tests/dashboard": _QUICK_PROCESSES,
    "tests/demo": _FULL_PROCESSES,
    "tests/docs": _QUICK,
    "tests/engine": _QUICK_PROCESSES,
    "tests/functions": _QUICK_PROCESSES,
    "tests/fuzz": _QUICK,
    "tests/ha": _QUICK,
    "tests/metrics": _QUICK,
    "tests/mutants": _QUICK,
    "tests/namesrv": _QUICK,
    "tests/notebooks": _FULL_SPARK,
    "tests/outbox": _QUICK_PROCESSES,
    "tests/packaging": _QUICK_PROCESSES,
    "tests/proxy": _QUICK_PROCESSES,
    "tests/grpc_wire": _QUICK,
    "tests/remoting": _QUICK,
    "tests/replicate": _FULL_PROCESSES,
    "tests/sim": _QUICK,
    "tests/spark": _QUICK,
    "tests/static_topic": _QUICK,
    "tests/store": _QUICK,
    "tests/testing": _QUICK_PROCESSES,
    "tests/transcripts": _QUICK,
    "tests/tidy": Place(Tier.LINT),
}

# Files whose row differs from their folder's: most of the plain ones start no process, most of the others a JVM or a
# broker.
_FILES: Final = {
    "tests/test_examples.py": _FULL_PROCESSES,
    "tests/proxy/server/test_attacks.py": _FULL_PROCESSES,
    "tests/test_footprint.py": _QUICK,
    "tests/test_loop_syncs.py": _QUICK,
    "tests/broker/controller/test_many_changes.py": Place(Tier.FULL),
    "tests/store/tier/test_real_store_faults.py": Place(Tier.FULL),
    "tests/broker/controller/test_processes.py": _FULL_PROCESSES,
    "tests/broker/controller/test_role_processes.py": _FULL_PROCESSES,
    "tests/broker/filter/test_verdicts_today.py": Place(Tier.FULL),
    "tests/chaos/replication/test_fault_proxy.py": _QUICK_PROCESSES,
    "tests/chaos/test_queue_checker.py": _QUICK,
    "tests/chaos/kills/test_sigkill.py": _QUICK_PROCESSES,
    "tests/sprocket_cli/test_columns.py": _QUICK,
    "tests/sprocket_cli/test_docs_commands.py": _QUICK,
    "tests/sprocket_cli/test_honoured_keys.py": _QUICK,
    "tests/sprocket_cli/server/test_server_config.py": _QUICK,
    "tests/sprocket_cli/server/test_server_process.py": _FULL_PROCESSES,
    "tests/sprocket_cli/mqadmin/test_static_topic_moves.py": _FULL_PROCESSES,
    "tests/sprocket_cli/test_update_allowlist.py": _QUICK,
    "tests/benchmarks/test_rivals.py": _FULL_PROCESSES,
    "tests/benchmarks/test_tenants.py": _FULL_PROCESSES,
    "tests/client/deduplication/test_kills.py": _FULL_PROCESSES,
    "tests/contrib/test_celery.py": _FULL_PROCESSES,
    "tests/contrib/test_django.py": _FULL_PROCESSES,
    "tests/functions/test_guarded_cluster.py": _FULL_PROCESSES,
    "tests/outbox/test_relay.py": _FULL_PROCESSES,
    "tests/client/test_static_topic_brokers.py": _FULL_CLIENTS,
    "tests/client/test_static_topic_pops.py": _FULL_CLIENTS,
    "tests/client/test_static_topic_resets.py": _FULL_CLIENTS,
    "tests/client/typed/test_pyright.py": Place(Tier.FULL),
    "tests/client/rebalance/test_allocation.py": _QUICK,
    "tests/client/rebalance/test_assignment.py": _QUICK,
    "tests/client/test_backpressure.py": _QUICK,
    "tests/client/test_compression.py": _QUICK,
    "tests/client/consume/test_consume_stats.py": _QUICK,
    "tests/client/consume/test_inbox.py": _QUICK,
    "tests/client/rebalance/test_offset_store.py": _QUICK,
    "tests/client/pop/test_pop_targets.py": _QUICK,
    "tests/client/pop/test_done_messages.py": _QUICK,
    "tests/client/pop/test_popped_message.py": _QUICK,
    "tests/client/pull/test_process_queue.py": _QUICK,
    "tests/client/send/test_queue_choice.py": _QUICK,
    "tests/client/orderly/test_queue_locks.py": _QUICK,
    "tests/client/pull/test_record_decoder.py": _QUICK,
    "tests/client/pop/test_renewal.py": _QUICK,
    "tests/client/send/test_send_request.py": _QUICK,
    "tests/client/connection/test_unique_id.py": _QUICK,
    "tests/compat/clients/test_java_client.py": _QUICK_CLIENT,
    "tests/compat/storms/test_matrix_page.py": _QUICK,
    "tests/compat/test_acceptance_page.py": _QUICK,
    "tests/controller/test_processes.py": _FULL_PROCESSES,
    "tests/demo/test_flight_charts.py": _QUICK,
    "tests/demo/test_next_steps.py": _QUICK,
    "tests/demo/test_verdict.py": _QUICK,
    "tests/dashboard/test_chromium.py": _FULL_PROCESSES,
    "tests/sprocket_cli/processes/test_cluster_health.py": _FULL_PROCESSES,
    "tests/engine/test_build.py": _FULL_PROCESSES,
    "tests/packaging/test_wheel.py": _FULL_PROCESSES,
    "tests/ha/raft/test_greeting.py": _QUICK_CLIENT,
    "tests/ha/raft/test_member.py": _QUICK_CLIENT,
    "tests/ha/raft/test_pickles.py": _QUICK_CLIENT,
    "tests/ha/raft/test_processes.py": _FULL_PROCESSES,
    "tests/spark/tables/test_kills.py": _FULL_SPARK,
    "tests/spark/test_cluster.py": _FULL_SPARK,
    "tests/spark/test_exactly_once.py": _FULL_SPARK,
    "tests/spark/test_live_store.py": _QUICK_PROCESSES,
    "tests/spark/test_queries_benchmark.py": _FULL_SPARK,
    "tests/spark/write/test_sink.py": _QUICK_SPARK,
    "tests/spark/test_source.py": _QUICK_SPARK,
    "tests/spark/test_sql_tables.py": _QUICK_SPARK,
    "tests/spark/test_store_report.py": _FULL_SPARK,
    "tests/spark/test_stream_in_spark.py": _QUICK_SPARK,
    "tests/spark/runtime/test_stream_worker.py": _QUICK_PROCESSES,
    "tests/spark/runtime/test_worker_python.py": _QUICK_SPARK,
    "tests/spark/wire/test_wire.py": _QUICK_PROCESSES,
}

# The longest path that fits decides.
PLACES: Final[Mapping[str, Place]] = _FOLDERS | _FILES

# Their tests use the fixture `spark_session`.  All of them run in one worker, so that one JVM serves them.
SPARK_SESSION: Final = frozenset(
    {
        "tests/spark/tables/test_kills.py",
        "tests/spark/test_queries_benchmark.py",
        "tests/spark/write/test_sink.py",
        "tests/spark/test_source.py",
        "tests/spark/test_sql_tables.py",
        "tests/spark/test_store_report.py",
        "tests/spark/test_stream_in_spark.py",
        "tests/spark/runtime/test_worker_python.py",
    }
)

_TIERS_OF: Final = {"quick": frozenset({Tier.QUICK}), "all": frozenset({Tier.QUICK, Tier.FULL})}
_chosen: str | None = None


def choose(name: str | None) -> str | None:
    """Take the value of ``--tier`` and return the one before.  `seeds` needs it when tests are collected."""
    global _chosen
    assert name is None or name in _TIERS_OF
    before, _chosen = _chosen, name
    return before


def place_of(path: str) -> Place:
    """Return the row of `PLACES` for a path under the project's folder."""
    parts = PurePosixPath(path).parts
    names = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next(PLACES[name] for name in names if name in PLACES)


def is_quick() -> bool:
    """Say whether `make test` runs its first tier."""
    return _chosen == "quick"


def is_chosen(path: str) -> bool:
    """Say whether the tests of a file run in the chosen tier."""
    return _chosen is None or place_of(path).tier in _TIERS_OF[_chosen]


def seeds(count: int, *, quick: int = 1) -> range:
    """Return the seeds of a sweep: `count`, or the first `quick` in the quick tier."""
    return range(quick if is_quick() else count)


def examples(count: int) -> int:
    """Return how many examples Hypothesis makes: `count`, or a tenth and at least five in the quick tier."""
    return max(count // 10, 5) if is_quick() else count


def sample(values: Sequence[T], *, quick: int = 1) -> Sequence[T]:
    """Return the cases of a sweep: all, or the last `quick` in the quick tier."""
    return values[-quick:] if is_quick() else values

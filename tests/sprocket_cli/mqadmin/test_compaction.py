"""`mqadmin dumpCompactionLog` reads the files of compacted topics."""

from pathlib import Path

from click.testing import CliRunner

from sprocket_cli.mqadmin.main import main
from tests.clock import ManualClock
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_store import SimStore, small_config
from tests.store.compaction.compacting import TOPIC, compact, fill_segment, price


def dumped(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["dumpCompactionLog", *arguments])
    return done.exit_code, done.output


def test_each_record_of_a_file_is_printed_as_rocketmq_prints_it(tmp_path: Path) -> None:
    sim = SimStore(SimDisk(), small_config(sync_flush=False, segment_bytes=8192), ManualClock())
    sim.open()
    sim.store.compaction.set_topics([TOPIC])
    sim.store.append([price("a", b"1"), price("b", b"2"), price("a", b"3")])
    fill_segment(sim.store)
    compact(sim)
    content = next(content for path, content in sim.disk.files().items() if path.match("compacted/*/0/*.log"))
    path = tmp_path / "part.log"
    path.write_bytes(content)
    code, output = dumped("-f", str(path))
    lines = output.splitlines()
    assert (code, len(lines)) == (0, 2)
    assert lines[0].startswith("MessageExt [brokerName=null, queueId=0, storeSize=")
    assert "queueOffset=1," in lines[0] and "queueOffset=2," in lines[1]
    assert lines[0].endswith("KEYS=b}, body=null, transactionId='null'}]")
    path.write_bytes(content[:-5].rstrip(b"\0")[:-5])
    assert dumped("--file", str(path))[1].endswith("ends within a record\n")


def test_what_is_no_file(tmp_path: Path) -> None:
    assert dumped() == (0, "miss dump log file name\n")
    code, output = dumped("-f", str(tmp_path / "none"))
    assert code and f"file {tmp_path / 'none'} not exist." in output
    code, output = dumped("-f", str(tmp_path))
    assert code and f"file {tmp_path} is a directory." in output

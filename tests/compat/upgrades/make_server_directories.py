"""Makes ``data/sprocket-controller-COMMIT.tar.xz`` and ``data/sprocket-auth-COMMIT.tar.xz``.

They are the directories of killed servers: a controller of a previous version with two brokers of this version, as
commit 1409cd06 had no brokers in controller mode, and a broker of the previous version with users and policies.

``git archive 1409cd06 | tar x -C FOLDER``, then
``python -m tests.compat.upgrades.make_server_directories 1409cd06 FOLDER``: this takes ten seconds.
Tests need only the archives.
"""

import json
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.compat.controllers.controllers import GROUP, ControllerCluster
from tests.compat.replication.replicas import until
from tests.compat.security.test_auth import PROPERTIES, Door, refusals, set_up
from tests.compat.upgrades.previous import PreviousCluster, server_of

_FOLDER = Path(__file__).resolve().parents[1] / "data"
# What a leader says of a group, apart from addresses, which are other ones at the next start.
KEPT = ("masterBrokerId", "masterEpoch", "body")


def main() -> None:
    """Write both archives of the version named by the arguments: its commit, and a folder with its source code."""
    commit, source = sys.argv[1], Path(sys.argv[2]).absolute()
    with tempfile.TemporaryDirectory() as name:
        _make_controller(source, Path(name) / "controller", _FOLDER / f"sprocket-controller-{commit}.tar.xz")
        _make_auth(source, Path(name) / "auth", _FOLDER / f"sprocket-auth-{commit}.tar.xz")


def _make_controller(source: Path, root: Path, target: Path) -> None:
    """A group that has elected twice."""
    with ControllerCluster(root, count=1) as cluster:
        (controller,) = cluster.controllers
        controller.command = server_of(source, "mqcontroller", controller.directory / "controller.conf")
        cluster.start_controllers()
        brokers = [cluster.add_sprocket_broker(number) for number in (0, 1)]
        for count, broker in enumerate(brokers, 1):
            broker.start()
            until(lambda: cluster.in_sync() == count, f"{count} replicas are in sync")  # noqa: B023
        master = cluster.master(brokers)
        assert master is not None
        other = next(broker for broker in brokers if broker is not master)
        master.kill()
        until(lambda: cluster.master(brokers) is other, "the other broker leads")
        master.start()
        until(lambda: cluster.in_sync() == 2, "both are in sync again")
        said = {name: cluster.replica_info()[name] for name in KEPT}
        for server in (controller, *brokers):
            server.kill()
    folders = {"controller": controller.directory, "0": brokers[0].directory, "1": brokers[1].directory}
    _pack(target, {"group": GROUP, "said": said}, folders)


def _make_auth(source: Path, root: Path, target: Path) -> None:
    """Users and policies, and what they refuse."""
    with PreviousCluster(source, root, properties=PROPERTIES) as cluster:
        (broker,) = cluster.brokers
        door = Door(broker.address)
        set_up(door)
        answers = refusals(door)
        broker.kill()
    _pack(target, {"refusals": answers}, {"broker": broker.directory})


def _pack(target: Path, ledger: Mapping[str, object], folders: Mapping[str, Path]) -> None:
    """Write what servers said, and their stores."""
    with tarfile.open(target, "w:xz") as archive:
        file = next(iter(folders.values())) / "ledger.json"
        file.write_text(json.dumps(ledger))
        archive.add(file, "ledger.json")
        for name, folder in folders.items():
            archive.add(folder / "store", f"{name}/store")
    print(f"{target}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()

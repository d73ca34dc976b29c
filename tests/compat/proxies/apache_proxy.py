"""A process of Apache RocketMQ's own proxy."""

import json
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sprocket.common.processes.child_process import ChildProcess
from tests.compat import maven
from tests.compat.ports import free_port
from tests.compat.proxies.proxy_rig import OwnBroker, Served

_START_LIMIT_S: Final = 180


class ApacheProxy:
    """RocketMQ's proxy, in local mode if `broker` is its own; `end` stops it."""

    def __init__(
        self,
        broker: Served | OwnBroker,
        home: Path,
        *,
        version: str = maven.APACHE_VERSION,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.grpc_port, self.remoting_port = free_port(), free_port()
        self.log = home / "out.txt"
        written = {
            "rocketMQClusterName": "DefaultCluster", "namesrvAddr": broker.namesrv,
            "grpcServerPort": self.grpc_port, "remotingListenPort": self.remoting_port, **(settings or {}),
        }  # fmt: skip
        mode, memory_mib = "", 384
        if isinstance(broker, OwnBroker):
            written["rocketMQClusterName"] = broker.cluster
            mode, memory_mib = f"-pm local -bc {broker.file}", 768
        (home / "conf").mkdir(parents=True)
        file = home / "conf" / "rmq-proxy.json"
        file.write_text(json.dumps(written))
        java, classpath = " ".join(maven.short_java()), maven.proxy_classpath(version)
        program = f'exec {java} -Xmx{memory_mib}m -Duser.home={home} -cp "{classpath}" '
        program += f"org.apache.rocketmq.proxy.ProxyStartup {mode} -pc {file} > {self.log} 2>&1"
        # The broker of local mode reads its home from a variable of its own, and ends without it.
        command = ["env", f"RMQ_PROXY_HOME={home}", f"ROCKETMQ_HOME={home}", "sh", "-c", program]
        self._process = ChildProcess("apache-proxy", command, home)
        self._process.launch()

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_start(self) -> None:
        limit = time.monotonic() + _START_LIMIT_S
        while "startup successfully" not in (self.log.read_text() if self.log.exists() else ""):
            assert time.monotonic() < limit and self._process.exit_status is None, self.log.read_text()[-2000:]
            time.sleep(0.2)

    def end(self) -> None:
        self._process.end(signal.SIGTERM, 30.0)

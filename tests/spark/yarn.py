"""A YARN cluster of this machine: a ResourceManager and a NodeManager, each a process, stopped by their own ids."""

import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from tests.compat.maven import java, yarn_classpath
from tests.compat.ports import free_port
from tests.spark.standalone import await_line, bare_python, run_submit, spark_environment, stop

_SERVER: Final = "org.apache.hadoop.yarn.server"
_LIGHT: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@contextmanager
def yarn_cluster(directory: Path) -> Iterator[Path]:
    """The cluster's configuration (HADOOP_CONF_DIR).  Raises JavaMissingError, ClusterError."""
    conf = directory / "conf"
    conf.mkdir()
    _write(conf / "core-site.xml", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(directory / "tmp")})
    _write(conf / "yarn-site.xml", _yarn_settings(directory))
    queues = {"queues": "default", "default.capacity": "100"}
    capacities = {f"yarn.scheduler.capacity.root.{name}": value for name, value in queues.items()}
    _write(conf / "capacity-scheduler.xml", capacities)
    (conf / "log4j.properties").write_text(
        "log4j.rootLogger=INFO,console\nlog4j.appender.console=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.console.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.console.layout.ConversionPattern=%d %p %c{1}: %m%n\n"
    )
    classpath = f"{conf}:{yarn_classpath()}"
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for name, main, said in (
            ("resources", "resourcemanager.ResourceManager", "(Transitioned to active state)"),
            ("node", "nodemanager.NodeManager", "(Registered with ResourceManager)"),
        ):
            log = directory / f"{name}.log"
            with log.open("wb") as output:
                command = [java(), "-Xmx400m", *_LIGHT.split(), "-cp", classpath, f"{_SERVER}.{main}"]
                process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
            processes.append(process)
            await_line(process, log, said)
        yield conf
    finally:
        stop(processes)


def packed_environment(directory: Path) -> Path:
    """`directory`/environment: a Python with the dependencies alone; and the archive of it, as venv-pack makes one."""
    environment = directory / "environment"
    bare_python(environment)
    archive = directory / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as file:
        file.add(environment, ".")
    return archive


def submit_to_yarn(mode: str, conf: Path, archive: Path, wheel: Path, arguments: list[str]) -> str:
    """What the application prints in `mode` client or cluster, from the folder in which the archive is unpacked.

    Raises ClusterError.
    """
    work = archive.parent
    environment = {**spark_environment(Path(sys.executable)), "HADOOP_CONF_DIR": str(conf)}
    del environment["PYSPARK_PYTHON"]
    settings = {
        "spark.pyspark.python": "./environment/bin/python",
        # The jars are on this machine already: they need not be copied for each application.
        "spark.yarn.jars": f"local:{environment['SPARK_HOME']}/jars/*",
        "spark.yarn.stagingDir": str(work / "staging"),
        "spark.executor.instances": "2",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        **{f"spark.{part}.extraJavaOptions": _LIGHT for part in ("driver", "executor", "yarn.am")},
    }
    if mode == "cluster":
        del settings["spark.yarn.am.extraJavaOptions"]
    pairs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    brought = ["--archives", f"{archive}#environment", "--py-files", str(wheel)]
    printed = run_submit(["--master", "yarn", "--deploy-mode", mode, *brought, *pairs, *arguments], environment, work)
    if mode == "client":
        return printed
    logs = max((conf.parent / "logs").glob("application_*"))
    return "".join(path.read_text(errors="replace") for path in logs.glob("container_*/stdout"))


def _yarn_settings(directory: Path) -> dict[str, str]:
    resources = {
        f"yarn.resourcemanager.{name}address": f"127.0.0.1:{free_port()}"
        for name in ("", "scheduler.", "resource-tracker.", "admin.", "webapp.")
    }
    node = {f"yarn.nodemanager.{name}address": "127.0.0.1:0" for name in ("", "localizer.", "webapp.")}
    return {
        **resources,
        **node,
        "yarn.nodemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.local-dirs": str(directory / "local"),
        "yarn.nodemanager.log-dirs": str(directory / "logs"),
        "yarn.nodemanager.resource.memory-mb": "6144",
        "yarn.nodemanager.resource.cpu-vcores": "8",
        "yarn.scheduler.minimum-allocation-mb": "256",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.pmem-check-enabled": "false",
        # Otherwise a disk that is more than 90 % full counts as broken.
        "yarn.nodemanager.disk-health-checker.enable": "false",
    }


def _write(path: Path, settings: Mapping[str, str]) -> None:
    entries = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in settings.items()
    )
    path.write_text("<configuration>\n" + "\n".join(entries) + "\n</configuration>\n")

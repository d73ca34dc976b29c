"""A standalone Spark cluster of this machine: a master and two workers, each a process, stopped by their own ids."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from spark.runtime.java_home import find_java_home

SPARK_HOME: Final = Path(pyspark.__file__).parent
_ROOT: Final = Path(__file__).resolve().parents[2]
LIMIT_S: Final = 300.0
_END_LIMIT_S: Final = 30.0
# Of an application: nothing but a hanging one takes that long.
_RUN_LIMIT_S: Final = 900.0


class ClusterError(Exception):
    """A process ended, or did not say in time what it should; the text holds the end of its log."""


def build_wheel(directory: Path) -> Path:
    """The project's wheel, as executors get it."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(directory), str(_ROOT)], check=True, timeout=LIMIT_S)
    return next(directory.glob("*.whl"))


def bare_python(directory: Path) -> Path:
    """A Python with all that the project depends on, and without the project."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=LIMIT_S)
    (packages,) = directory.glob("lib/python*/site-packages")
    # What stands in this folder is found; its .pth files, which name the project's folder, are not read.
    (packages / "dependencies.pth").write_text(f"{Path(pyspark.__file__).parents[1]}\n")
    return directory / "bin" / "python"


@contextmanager
def standalone_cluster(directory: Path, python: Path) -> Iterator[str]:
    """The master's URL.  Raises ClusterError."""
    processes: list[subprocess.Popen[bytes]] = []
    environment = spark_environment(python)

    def start(name: str, said: str, *arguments: str) -> str:
        log = directory / f"{name}.log"
        command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment, cwd=directory
            )
        processes.append(process)
        return await_line(process, log, said)

    try:
        address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = "org.apache.spark.deploy.master.Master"
        url = start("master", r"Starting Spark master at (spark://\S+)", master, *address)
        for name in ("worker-1", "worker-2"):
            worker = ("org.apache.spark.deploy.worker.Worker", url, "--cores", "1", "--memory", "1g")
            start(
                name, r"(Successfully registered with master)", *worker, *address, "--work-dir", str(directory / name)
            )
        yield url
    finally:
        stop(processes)


def stop(processes: "Sequence[subprocess.Popen[bytes]]") -> None:
    """End them, the last one first."""
    for process in reversed(processes):
        process.terminate()
    for process in processes:
        try:
            process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def submit(url: str, wheel: Path, python: Path, application: Path, arguments: Sequence[str]) -> str:
    """What the application prints.  Raises ClusterError."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        # Work begins when both workers have given their executor.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    }
    pairs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command = ["--master", url, "--py-files", str(wheel), *pairs, str(application), *arguments]
    return run_submit(command, spark_environment(python), wheel.parent)


def run_submit(arguments: Sequence[str], environment: Mapping[str, str], directory: Path) -> str:
    """What spark-submit prints.  Raises ClusterError."""
    done = subprocess.run(
        [str(SPARK_HOME / "bin" / "spark-submit"), *arguments],
        capture_output=True, text=True, timeout=_RUN_LIMIT_S, check=False, env=environment, cwd=directory,
    )  # fmt: skip
    if done.returncode != 0:
        errors = "\n".join(line for line in done.stderr.splitlines() if " INFO " not in line)
        raise ClusterError(f"status {done.returncode}\n{done.stdout[-3000:]}\n{errors[-6000:]}")
    return done.stdout


def spark_environment(python: Path) -> dict[str, str]:
    """For a process of Spark whose Python is `python`."""
    left_out = ("PYTHONPATH", "MASTER", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT")
    return {
        **{name: value for name, value in os.environ.items() if name not in left_out},
        "JAVA_HOME": str(find_java_home()),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python),
    }


def await_line(process: "subprocess.Popen[bytes]", log: Path, said: str) -> str:
    """The group of `said` where it stands in `log`, once it does.  Raises ClusterError."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        found = re.search(said, log.read_text(errors="replace"))
        if found is not None:
            return found[1]
        if process.poll() is not None or time.monotonic() > deadline:
            raise ClusterError(f"status {process.poll()}: {log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.1)

"""A Spark session that reads RocketMQ stores, and the registration of the source with one that exists."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from spark.runtime.java_home import find_java_home
from spark.runtime.worker_python import installed_pyspark
from spark.source import RocketMQDataSource

# Static ones must be there when the session starts.
SETTINGS: Final = {
    # Without it Spark refuses the option filterPushdown.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Cuts the overhead of a task from about 81 to 27 ms.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# All queries of a session share the environment of the source, a HashMap of Java, and each stream that starts puts
# these into it (Spark 4.3, `PythonStreamingSourceRunner.init`).  No lock is held: two that start at once can leave the
# map broken for good, and then every task of every query of the session fails with `java.io.OptionalDataException`.
# Where the names are there already, values change and nothing else.  Whoever runs Python puts values of its own there.
_STREAM_VARIABLES: Final = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)

# What SETTINGS say for one machine, and not for a cluster.
_OF_ONE_MACHINE: Final = frozenset({"spark.sql.shuffle.partitions", "spark.ui.enabled"})
# By default Spark makes its Unix sockets in Java's temporary directory.  That of a YARN container has a path which is
# longer than the name of a socket can be ("AF_UNIX path too long").
_SOCKETS: Final = {"spark.python.unix.domain.socket.dir": "/tmp"}

# Spark writes two small files of a stream's checkpoint for each micro-batch.  By `FileContext`, its choice, Hadoop's
# local file system starts ten processes (chmod, readlink) for each of them, by `FileSystem` two.  Both look whether the
# file is there and then rename to it, so a checkpoint on a local disk is as safe as before.
LOCAL_SETTINGS: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

# spark-submit sets it for the Python that it starts: there is a JVM, and it knows its master and its workers' Python.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
# How long a JVM may take to end before it is killed.
_JVM_END_S: Final = 20.0


def session(
    master: str | None = None, app_name: str = "sprocket", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with the source ``rocketmq`` registered; an active one is used as it is.

    `master` is by default what started this process says (spark-submit, or SPARK_REMOTE), else all processors of this
    machine.  `settings` go over what spark-submit was told, and that over `SETTINGS`; where the workers are of this
    machine, over `LOCAL_SETTINGS`, too.  Raises ConfigError if no Java 17 or newer is found.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        register(active)
        return active
    builder = SparkSession.builder.appName(app_name)
    if _SUBMITTED not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java_home())
        # The workers import this package: they need the interpreter that has it.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if master is None and "SPARK_REMOTE" not in os.environ:
            master = os.environ.get("MASTER", "local[*]")
    if master is not None:
        builder = builder.master(master)
    defaults = _submitted_settings() if _SUBMITTED in os.environ else SETTINGS
    local = LOCAL_SETTINGS if (master or "").startswith("local") else {}
    for name, value in {**defaults, **local, **(settings or {})}.items():
        builder = builder.config(name, value)
    with installed_pyspark(master):
        spark = builder.getOrCreate()
    _hand_out_wheels(spark)
    register(spark)
    return spark


def _submitted_settings() -> dict[str, str]:
    """What of `SETTINGS` is for a cluster, and spark-submit was not told otherwise."""
    SparkContext._ensure_initialized()  # the JVM, which has read them
    said = dict(SparkConf().getAll())
    ours = {name: value for name, value in SETTINGS.items() if name not in _OF_ONE_MACHINE}
    return {name: value for name, value in {**ours, **_SOCKETS}.items() if name not in said}


def _hand_out_wheels(spark: SparkSession) -> None:
    """Spark takes ``--py-files x.whl`` and leaves it off its workers' path, as it is no ``.zip``; a wheel is one."""
    if _SUBMITTED not in os.environ:
        return
    for text in (spark.conf.get("spark.submit.pyFiles", "") or "").split(","):
        wheel = Path(urlsplit(text).path)
        if wheel.suffix == ".whl" and wheel.is_file():
            copy = Path(SparkFiles.getRootDirectory()) / wheel.with_suffix(".zip").name
            shutil.copyfile(wheel, copy)
            spark.sparkContext.addPyFile(str(copy))


def close(spark: SparkSession) -> None:
    """Stop `spark` and wait until its JVM is gone; `SparkSession.stop` alone leaves it until this process ends."""
    gateway = spark.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    spark.stop()
    if gateway is None or process is None:
        return
    gateway.shutdown()
    # The JVM that PySpark launched ends when its standard input does.
    process.stdin.close()
    try:
        process.wait(_JVM_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # A later session of this process launches a JVM of its own.
    SparkContext._gateway = SparkContext._jvm = None


def register(spark: SparkSession) -> None:
    """Make the source known to `spark`, and turn its filter pushdown on (a setting of the Spark session)."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    with _variables_of_streams(spark):
        spark.dataSource.register(RocketMQDataSource)


@contextmanager
def _variables_of_streams(spark: SparkSession) -> Iterator[None]:
    """While a source is registered, the environment that it gets has the names that streams will put into it."""
    if is_remote():  # there the server makes the environment
        yield
        return
    environment = spark.sparkContext.environment
    added = [name for name in _STREAM_VARIABLES if name not in environment]
    environment.update(dict.fromkeys(added, ""))
    try:
        yield
    finally:
        for name in added:
            del environment[name]

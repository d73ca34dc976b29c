"""Spark sessions that read RocketMQ stores, and registration of the source with an existing session."""

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

# Static settings must be set before the session starts.
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
# these names into it without a lock (Spark 4.3, `PythonStreamingSourceRunner.init`).  Two streams that start at once
# can corrupt the map, and then every task of the session fails with `java.io.OptionalDataException`.  If the map has
# the names already, a put only replaces values, which is safe.  Each start of Python sets its own values.
_STREAM_VARIABLES: Final = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)

# Additional settings for one machine, not for a cluster.
_OF_ONE_MACHINE: Final = frozenset({"spark.sql.shuffle.partitions", "spark.ui.enabled"})
# By default Spark creates its Unix sockets in Java's temporary directory.  In a YARN container that path is too long
# for a socket ("AF_UNIX path too long").
_SOCKETS: Final = {"spark.python.unix.domain.socket.dir": "/tmp"}

# Spark writes two small files of a stream's checkpoint for each micro-batch.  With `FileContext`, Spark's default,
# Hadoop's local file system starts ten processes (chmod, readlink) for each file; with `FileSystem`, two.  Both check
# for the file and then rename to it, so a checkpoint on a local disk is equally safe.
LOCAL_SETTINGS: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

# spark-submit sets it for the Python that it starts: the JVM already runs and knows the master and the workers' Python.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
# Time for a JVM to end before it is killed.
_JVM_END_S: Final = 20.0


def session(
    master: str | None = None, app_name: str = "sprocket", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session with the source ``rocketmq`` registered; an active session is used unchanged.

    `master` defaults to that of spark-submit or SPARK_REMOTE, else to all processors of this machine.  `settings`
    override those of spark-submit, and those override `SETTINGS` and, with workers on this machine, `LOCAL_SETTINGS`.
    Raises ConfigError if no Java 17 or newer is found.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        register(active)
        return active
    builder = SparkSession.builder.appName(app_name)
    if _SUBMITTED not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java_home())
        # The workers import this package: they need this interpreter.
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
    """Return those of `SETTINGS` that apply to a cluster and that spark-submit does not set."""
    SparkContext._ensure_initialized()  # the JVM, which has read the settings
    said = dict(SparkConf().getAll())
    ours = {name: value for name, value in SETTINGS.items() if name not in _OF_ONE_MACHINE}
    return {name: value for name, value in {**ours, **_SOCKETS}.items() if name not in said}


def _hand_out_wheels(spark: SparkSession) -> None:
    """Add wheels of ``--py-files`` to the workers' path: Spark adds only files named ``.zip``."""
    if _SUBMITTED not in os.environ:
        return
    for text in (spark.conf.get("spark.submit.pyFiles", "") or "").split(","):
        wheel = Path(urlsplit(text).path)
        if wheel.suffix == ".whl" and wheel.is_file():
            copy = Path(SparkFiles.getRootDirectory()) / wheel.with_suffix(".zip").name
            shutil.copyfile(wheel, copy)
            spark.sparkContext.addPyFile(str(copy))


def close(spark: SparkSession) -> None:
    """Stop `spark` and wait for the end of its JVM; after `SparkSession.stop` alone it runs until this process ends."""
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
    """Register the source with `spark`, and turn filter pushdown on (a setting of the session)."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    with _variables_of_streams(spark):
        spark.dataSource.register(RocketMQDataSource)


@contextmanager
def _variables_of_streams(spark: SparkSession) -> Iterator[None]:
    """Set the variables of streams in the environment that a source gets when it is registered in this block."""
    if is_remote():  # the server creates the environment
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

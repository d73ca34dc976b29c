"""Helpers of commands that use Spark: directories, a quiet session, errors without a stack."""

import logging
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

import click

from sprocket.common.errors import ConfigError, SprocketError
from sprocket.common.extras import install
from sprocket_cli.client_session import CommandFailed, WrongUsage, option_set
from sprocket_cli.store.commands import DiskTrouble

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


directories = click.argument("paths", metavar="DIR...", nargs=-1, required=True)
_SETTINGS: Final = {"spark.sql.catalogImplementation": "in-memory", "spark.log.level": "OFF"}
# An error of Sprocket in the text of a worker, after its stack.
_OWN_ERROR: Final = re.compile(r"sprocket\.common\.errors\.(\w+): (.+)")
_PYTHON_ERROR: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .+", re.MULTILINE)
_STACK: Final = re.compile(r"\n+(?:JVM stacktrace:|\s+at [\w.$]+\().*", re.DOTALL)
_PLAN: Final = re.compile(r"(line \d+ pos \d+);\n.*", re.DOTALL)


# What chooses the messages to read.
reading_options = option_set(
    click.option(
        "-o",
        "--option",
        "named",
        metavar="NAME=VALUE",
        multiple=True,
        help="Option of the data source, as mode=DROPMALFORMED; repeatable.",
    ),
    click.option("--since", help="Only messages stored at this time or later: ms since 1970, or ISO 8601 with a zone."),
    click.option("--until", help="Only messages stored before this time."),
)


def source_options(since: str | None, until: str | None, named: tuple[str, ...]) -> dict[str, str]:
    """Return the options for the data source.  Raises WrongUsage for an option without a value."""
    options = {}
    for each in named:
        name, equals, value = each.partition("=")
        if not equals:
            raise WrongUsage(f"--option {each!r} has no value: write NAME=VALUE")
        options[name] = value
    if since is not None:
        options["startingTimestamp"] = since
    if until is not None:
        options["endingTimestamp"] = until
    return options


@contextmanager
def spark_session() -> "Iterator[SparkSession]":
    """Yield the active session or a new one; turn errors into a message and an exit status."""
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        from spark.session import close, session
    except ImportError as error:
        raise WrongUsage(f"this needs Spark ({error}): {install('spark')}") from None
    was_active = SparkSession.getActiveSession() is not None
    # This logger writes Java's stack of a failed query to stderr; the error itself is enough.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    spark = None
    try:
        if was_active:
            spark = session()
        else:
            with _quiet_launch():
                spark = session(app_name="sprocket", settings=_SETTINGS)
        yield spark
    except ConfigError as error:
        raise WrongUsage(str(error)) from None
    except SprocketError as error:
        raise DiskTrouble(str(error)) from None
    except PySparkException as error:
        fail(error)
    finally:
        if spark is not None and not was_active:
            close(spark)


@contextmanager
def _quiet_launch() -> Iterator[None]:
    """Redirect the output of Java and its workers to a file; show it if the launch fails."""
    with tempfile.TemporaryFile() as said:
        kept = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            yield
        except ConfigError:
            raise
        except Exception as error:
            said.seek(0)
            text = said.read().decode(errors="replace").strip()
            raise CommandFailed(f"Spark does not start: {error}\n{text}") from None
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def fail(error: Exception) -> NoReturn:
    """End the command with the message of Spark's `error`, without a stack."""
    text = str(error)
    own = _OWN_ERROR.findall(text)
    if own:
        kind, said = own[-1]
        raise (WrongUsage if kind == "ConfigError" else DiskTrouble)(said.strip()) from None
    raise CommandFailed(message_of(error)) from None


def message_of(error: Exception) -> str:
    """Return the message of `error`, without a stack of Python or Java."""
    text = str(error)
    raised = _PYTHON_ERROR.findall(text)
    if "Traceback (most recent call last)" in text and raised:
        return str(raised[-1])
    return _PLAN.sub(r"\1", _STACK.sub("", text)).strip()

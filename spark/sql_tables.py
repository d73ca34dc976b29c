"""Topics as tables of Spark SQL: each topic that holds messages is a table of its name, ``messages`` is all of them.

A table is made when a query names it: making one takes Spark a moment, and a store can hold thousands of topics.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from spark.decode.columns import COLUMN_TYPES, DEFAULT_COLUMNS
from spark.files.consume_queue import every_topic_of
from spark.files.store_directory import find_stores
from spark.options.source_options import read_options
from sprocket.common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

ALL: Final = "messages"
_QUERY: Final = re.compile(r"[\s(]*(select|with|from|values)\b", re.IGNORECASE)
_SHOW_TABLES: Final = re.compile(r"\s*show\s+tables\s*;?\s*", re.IGNORECASE)
# Below one of these, Spark's optimizer leaves no column that nobody asks for.
_PRUNING: Final = frozenset({"Project", "Aggregate"})


class SqlTables:
    """The tables of some stores.  `options` are options of the data source; bodies are inflated unless they say not.

    Raises ConfigError for a path that is no store, and for options that the data source refuses.
    """

    def __init__(self, spark: SparkSession, paths: Sequence[str], options: Mapping[str, str] | None = None) -> None:
        self._spark = spark
        stores = find_stores(paths)
        self._paths = [f"{store.broker_name}={store.root}" for store in stores]
        self._options = {"inflateBodies": "true", **(options or {})}
        # A query need not read a table; what it is given must be right all the same.
        read_options({**self._options, "path": str(stores[0].root)})
        self._default_columns = [*DEFAULT_COLUMNS, "bodyString", *(["brokerName"] if len(stores) > 1 else [])]
        topics = {topic for store in stores for topic in every_topic_of(store.root)}
        self.names: list[str] = [ALL, *sorted(topics - {ALL})]

    def table(self, name: str, columns: Sequence[str] = (), **options: str) -> DataFrame:
        """The rows of table `name`.  Raises ConfigError for one that is not there."""
        if name not in self.names:
            raise ConfigError(f"there is no table {name!r}")
        reader = self._spark.read.format("rocketmq").options(**self._options).options(**options)
        if name != ALL:
            reader = reader.option("subscribe", name)
        return reader.option("columns", ",".join(columns or self._default_columns)).load(self._paths)

    def columns_in(self, text: str) -> list[str]:
        """The columns of the tables that the query `text` is about: the usual ones, and others that it names."""
        more = [name for name in COLUMN_TYPES if name not in self._default_columns and _is_word(name, text)]
        return [*self._default_columns, *more]

    def named_in(self, text: str) -> list[str]:
        """Tables that `text` may be about.  Raises ConfigError if it names two that Spark cannot tell apart."""
        by_name: dict[str, list[str]] = {}
        for name in self.names:
            if name.lower() in text.lower():
                by_name.setdefault(name.lower(), []).append(name)
        found = []
        for same in by_name.values():
            exact = [name for name in same if name in text] or same
            if len(exact) > 1:
                raise ConfigError(
                    f"topics {' and '.join(exact)} differ only in upper and lower case, which are the same to SQL: "
                    f"select from {ALL} where topic = '{exact[0]}'"
                )
            found += exact
        return found

    def register(self, names: Sequence[str], columns: Sequence[str], **options: str) -> None:
        """Make views of these tables, anew where they are there."""
        for name in names:
            self.table(name, columns, **options).createOrReplaceTempView(f"`{name}`")

    def query(self, text: str, *, is_run_once: bool = False) -> DataFrame:
        """What `text` selects; only the columns that it needs are read.  Raises what Spark raises.

        With `is_run_once` filters are pushed down where that is safe: the frame is then good for one action.
        """
        if _SHOW_TABLES.fullmatch(text):
            return self._spark.createDataFrame(
                [(name,) for name in self.names], StructType([StructField("table", StringType())])
            )
        names, columns = self.named_in(text), self.columns_in(text)
        self.register(names, columns)
        frame = self._spark.sql(text)
        if not _QUERY.match(text) or _is_command(frame):
            return frame
        leaves = list(_leaves(frame))
        used = frozenset[str]().union(*leaves) or frozenset({"queueId"})
        # Spark keeps pushed filters with a relation: they are safe where it is read once.
        pushes = is_run_once and len(leaves) == 1 and "filterPushdown" not in self._options
        options = {"filterPushdown": "true"} if pushes else {}
        try:
            self.register(names, [name for name in columns if name in used], **options)
            narrow = self._spark.sql(text)
            if narrow.schema == frame.schema:
                return narrow
        except AnalysisException:  # such as `SELECT * EXCEPT (body)`, which names what it does not read
            pass
        return frame


def _is_command(frame: DataFrame) -> bool:
    """Whether Spark has run what `frame` stands for, as ``WITH ... INSERT INTO``: a second time would do it twice."""
    plan: Any = frame._jdf.queryExecution().commandExecuted()
    return bool(plan.nodeName() == "CommandResult")


def _is_word(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\b", text, re.IGNORECASE) is not None


def _leaves(frame: DataFrame) -> "Iterator[AbstractSet[str]]":
    """For each relation that the optimized plan of `frame` reads, the names of the columns that are needed."""
    plan: Any = frame._jdf.queryExecution().optimizedPlan()
    inner = plan.subqueriesAll()
    for root in [plan, *_each(inner)]:
        yield from _leaves_below(root, [])


def _leaves_below(node: Any, above: list[Any]) -> "Iterator[AbstractSet[str]]":
    children = node.children()
    for child in _each(children):
        # What several children give goes on as a whole.
        yield from _leaves_below(child, [*above, node] if children.size() == 1 else [])
    if children.size() == 0:
        output = {attribute.exprId().id(): attribute.name() for attribute in _each(node.output())}
        if set(output.values()) <= COLUMN_TYPES.keys() and output:
            yield _needed(output, above)


def _needed(output: dict[int, str], above: list[Any]) -> "AbstractSet[str]":
    """Of a leaf's columns, those that the nodes above it use, up to the first that gives nothing else on."""
    used = set()
    for node in reversed(above):
        used |= {attribute.exprId().id() for attribute in _each(node.references().toSeq())}
        if node.nodeName() in _PRUNING:
            return {name for id_, name in output.items() if id_ in used}
    return set(output.values())


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]

"""Topics as tables of Spark SQL: one table for each topic with messages, and ``messages`` for all topics.

A table is created when a query names it, because a creation takes time and a store can have thousands of topics.
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
# Below these nodes, Spark's optimizer removes every unused column.
_PRUNING: Final = frozenset({"Project", "Aggregate"})


class SqlTables:
    """Tables of some stores.  `options` are options of the data source; by default bodies are inflated.

    Raises ConfigError for a path that is no store, and for options that the data source refuses.
    """

    def __init__(self, spark: SparkSession, paths: Sequence[str], options: Mapping[str, str] | None = None) -> None:
        self._spark = spark
        stores = find_stores(paths)
        self._paths = [f"{store.broker_name}={store.root}" for store in stores]
        self._options = {"inflateBodies": "true", **(options or {})}
        # Check paths and options now: a query may read no table.
        read_options({**self._options, "path": str(stores[0].root)})
        self._default_columns = [*DEFAULT_COLUMNS, "bodyString", *(["brokerName"] if len(stores) > 1 else [])]
        topics = {topic for store in stores for topic in every_topic_of(store.root)}
        self.names: list[str] = [ALL, *sorted(topics - {ALL})]

    def table(self, name: str, columns: Sequence[str] = (), **options: str) -> DataFrame:
        """Return the rows of table `name`.  Raises ConfigError for an unknown table."""
        if name not in self.names:
            raise ConfigError(f"there is no table {name!r}")
        reader = self._spark.read.format("rocketmq").options(**self._options).options(**options)
        if name != ALL:
            reader = reader.option("subscribe", name)
        return reader.option("columns", ",".join(columns or self._default_columns)).load(self._paths)

    def columns_in(self, text: str) -> list[str]:
        """Return the columns for the tables of query `text`: the default ones, and others that it names."""
        more = [name for name in COLUMN_TYPES if name not in self._default_columns and _is_word(name, text)]
        return [*self._default_columns, *more]

    def named_in(self, text: str) -> list[str]:
        """Return the tables that `text` may name.  Raises ConfigError for two that Spark cannot distinguish."""
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
        """Create or replace the views of these tables."""
        for name in names:
            self.table(name, columns, **options).createOrReplaceTempView(f"`{name}`")

    def query(self, text: str, *, is_run_once: bool = False) -> DataFrame:
        """Return the result of query `text`, which reads only the columns that it needs.  Raises Spark's exceptions.

        With `is_run_once`, filters are pushed down where that is safe; use the frame for one action only.
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
        # Spark keeps pushed filters with a relation: they are safe if it is read once.
        pushes = is_run_once and len(leaves) == 1 and "filterPushdown" not in self._options
        options = {"filterPushdown": "true"} if pushes else {}
        try:
            self.register(names, [name for name in columns if name in used], **options)
            narrow = self._spark.sql(text)
            if narrow.schema == frame.schema:
                return narrow
        except AnalysisException:  # such as `SELECT * EXCEPT (body)`, which names an unused column
            pass
        return frame


def _is_command(frame: DataFrame) -> bool:
    """Return whether Spark has already run the statement, as ``WITH ... INSERT INTO``: do not run it again."""
    plan: Any = frame._jdf.queryExecution().commandExecuted()
    return bool(plan.nodeName() == "CommandResult")


def _is_word(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\b", text, re.IGNORECASE) is not None


def _leaves(frame: DataFrame) -> "Iterator[AbstractSet[str]]":
    """Yield the names of the needed columns for each relation that the optimized plan of `frame` reads."""
    plan: Any = frame._jdf.queryExecution().optimizedPlan()
    inner = plan.subqueriesAll()
    for root in [plan, *_each(inner)]:
        yield from _leaves_below(root, [])


def _leaves_below(node: Any, above: list[Any]) -> "Iterator[AbstractSet[str]]":
    children = node.children()
    for child in _each(children):
        # The output of several children is passed on as a whole.
        yield from _leaves_below(child, [*above, node] if children.size() == 1 else [])
    if children.size() == 0:
        output = {attribute.exprId().id(): attribute.name() for attribute in _each(node.output())}
        if set(output.values()) <= COLUMN_TYPES.keys() and output:
            yield _needed(output, above)


def _needed(output: dict[int, str], above: list[Any]) -> "AbstractSet[str]":
    """Return the leaf's columns that the nodes above use, up to the first node that drops the others."""
    used = set()
    for node in reversed(above):
        used |= {attribute.exprId().id() for attribute in _each(node.references().toSeq())}
        if node.nodeName() in _PRUNING:
            return {name for id_, name in output.items() if id_ in used}
    return set(output.values())


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]

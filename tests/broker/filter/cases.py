"""Random SQL92 filters and messages, and what is said of them: by us, and by RocketMQ's own filter."""

import base64
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from broker.filter.java_numbers import NotComparable
from broker.filter.sql_filter import SqlFilter
from broker.filter.tokens import InvalidExpression
from tests.compat import maven

_SOURCE = maven.JAVA_SOURCES / "filter" / "Verdicts.java"
_JAVA_LIMIT_S = 300
_VERDICTS = {True: "TRUE", False: "FALSE", None: "NULL"}


@dataclass(frozen=True)
class Case:
    """`properties` are encoded: name 0x01 value 0x02."""

    expression: str
    properties: str


@lru_cache(maxsize=8192)
def _filter(expression: str) -> SqlFilter | None:
    try:
        return SqlFilter(expression)
    except InvalidExpression:
        return None


def our_verdict(case: Case) -> str:
    """REFUSED, TRUE, FALSE, NULL, or ERROR for what cannot be compared."""
    compiled = _filter(case.expression)
    if compiled is None:
        return "REFUSED"
    try:
        return _VERDICTS[compiled.evaluate(case.properties.encode())]
    except NotComparable:
        return "ERROR"


def reference_verdicts(cases: Sequence[Case]) -> list[str]:
    """The same from RocketMQ's classes.  Raises maven.JavaMissingError."""
    command = [*maven.short_java(), "-cp", maven.compiled(_SOURCE, maven.apache_classpath()), _SOURCE.stem]
    lines = "".join(f"{_base64(case.expression)}\t{_base64(case.properties)}\n" for case in cases)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=_JAVA_LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"Verdicts.java failed:\n{done.stderr[-2000:]}")
    return done.stdout.splitlines()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Generator:
    """Expressions of the grammar, some of them broken or of the wrong types, and messages that they speak of."""

    _NAMES = ("a", "b", "c", "TAGS", "$x_1", "A", "now")
    _TEXTS = (
        "", "5", "-5", "+7", "0", "007", "-0", "10", "2147483647", "2147483648", "-2147483648", "-2147483649",
        "9223372036854775807", "9223372036854775808", "3.14", "-0.0", "0.0", ".5", "5.", "1e3", "1E400", "1e-400",
        "NaN", "-NaN", "Infinity", "-Infinity", "inf", "1d", "2f", "3L", "0x10", "0x1p4", "-0x.8p1f", " 5", "5 ",
        "\t6\n", "1_0", "true", "TRUE", "false", "tRuE", "abc", "axb", "x", "it's", "%x%", "ü", "日本", "٣", "𝟓", "５",
        "--5", "+", "-", ".", "e5", "1e", "1e+", "99999999999999999999999", "00000000000000000000000000005",
        "1.7976931348623157e308", "4.9e-324", "9007199254740993", "9007199254740992.0", "a", "''",
    )  # fmt: skip
    _NUMBERS = (
        "0", "1", "5", "7", "10", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "5L", "5l",
        "3.14", "5.0", ".5", "5.", "1e3", "1E+3", "2.5e-1", "0.0", "1e400", "1e-400", "4.9e-324", "007", "0L", "0x10",
        "9007199254740993", "9007199254740992.0", "16.0",
    )  # fmt: skip
    _BLANKS = (" ", " ", " ", " ", "\t", "\n", "  ", " /* all of it */ ", " --rest\n", "/***/", "\f")
    _NOISE = (")", "(", "--", "/*", ";", ".", "'", '"', "%", "!=", "==", "and", "not", "is", "5", "x", "#", "like")

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def case(self) -> Case:
        expression = self._cased(self._boolean(self._random.randrange(1, 5)))
        chance = self._random.random()
        if chance < 0.04:
            expression += self._blank() + self._random.choice(self._NOISE)
        elif chance < 0.08:
            expression = self._broken(expression)
        return Case(expression, self.properties())

    def properties(self) -> str:
        chosen = self._random.choices((*self._NAMES, "xa", "ab", "UNIQ_KEY"), k=self._random.randrange(6))
        pieces = [f"{name}\x01{self._text()}" for name in chosen]
        return "\x02".join(pieces) + ("\x02" if self._random.random() < 0.8 else "")

    def _text(self) -> str:
        return self._random.choice(self._TEXTS)

    def _blank(self) -> str:
        return self._random.choice(self._BLANKS)

    def _words(self, *words: str) -> str:
        return self._blank().join(words)

    def _cased(self, expression: str) -> str:
        return expression.swapcase() if self._random.random() < 0.03 else expression

    def _broken(self, expression: str) -> str:
        at = self._random.randrange(len(expression) + 1)
        if self._random.random() < 0.5:
            return expression[:at] + expression[at + 1 :]
        return expression[:at] + self._random.choice(self._NOISE) + expression[at:]

    def _boolean(self, depth: int) -> str:
        chance = self._random.random()
        if depth <= 0 or chance < 0.3:
            return self._predicate(depth)
        if chance < 0.55:
            return self._words(self._boolean(depth - 1), self._random.choice(("AND", "and")), self._boolean(depth - 1))
        if chance < 0.8:
            return self._words(self._boolean(depth - 1), self._random.choice(("OR", "Or")), self._boolean(depth - 1))
        if chance < 0.88:
            return self._words("NOT", self._boolean(depth - 1))
        if chance < 0.97:
            return f"({self._boolean(depth - 1)})"
        return self._random.choice((*self._NAMES, "TRUE", "false", "NULL", "5", "'x'", "-a"))

    def _predicate(self, depth: int) -> str:
        chance, negation = self._random.random(), self._random.choice(("", "", "NOT "))
        left = self._operand(depth)
        if chance < 0.35:
            return self._words(left, self._random.choice((">", ">=", "<", "<=")), self._operand(depth))
        if chance < 0.6:
            return self._words(left, self._random.choice(("=", "<>")), self._operand(depth))
        if chance < 0.68:
            return self._words(left, self._random.choice(("is null", "IS NOT NULL")))
        if chance < 0.78:
            items = ",".join(self._string() for _ in range(self._random.randrange(1, 7)))
            return self._words(left, f"{negation}in ({items})")
        if chance < 0.88:
            part = self._random.choice(("contains", "startswith", "endswith"))
            return self._words(left, f"{negation}{part}", self._string())
        return self._words(left, f"{negation}between", self._operand(depth), "and", self._operand(depth))

    def _operand(self, depth: int) -> str:
        chance = self._random.random()
        if chance < 0.55:
            return self._random.choice(self._NAMES)
        if chance < 0.8:
            return self._random.choice(("", "", "", "-", "+", "- -")) + self._random.choice(self._NUMBERS)
        if chance < 0.89:
            return self._string()
        if chance < 0.94:
            return self._random.choice(("TRUE", "FALSE", "true"))
        if chance < 0.96:
            return self._random.choice(("NULL", "-a", "-TRUE", "-'x'", "-(a > 5)", "(a)", "(5)"))
        return f"({self._boolean(depth - 2)})"

    def _string(self) -> str:
        return "'" + self._text().replace("'", "''") + "'"

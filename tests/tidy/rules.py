"""The rules of tidiness as pure functions over source text; `test_tidy` applies them to the project."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

# Seam -> dotted names that reach past it.  A name ending in ".*" stands for the whole module.
SEAMS: dict[str, tuple[str, ...]] = {
    "clock": (
        "time.time",
        "time.time_ns",
        "time.monotonic",
        "time.monotonic_ns",
        "time.sleep",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
    ),
    "disk": (
        "open",
        "io.open",
        "os.open",
        "os.fdopen",
        "os.fsync",
        "os.fdatasync",
        "sprocket.common.files.regular_file.*",
    ),
    "network": ("socket.*",),
    "randomness": ("random.*", "secrets.*", "os.urandom", "uuid.uuid1", "uuid.uuid4", "numpy.random.*"),
    "sleep": ("asyncio.sleep",),
}
# Methods of pathlib.Path that open a file; their names belong to nothing else.
DISK_METHODS = frozenset({"read_bytes", "read_text", "write_bytes", "write_text"})

# Responses, and the codes with which a served request may be answered.  Any other code refuses: raise an error, or
# return a `Refusal`.
RESPONSES = frozenset({"Response", "ResponseTemplate"})
OUTCOMES = frozenset(
    {
        "SUCCESS",
        "PULL_NOT_FOUND",
        "PULL_RETRY_IMMEDIATELY",
        "PULL_OFFSET_MOVED",
        "QUERY_NOT_FOUND",
        "POLLING_FULL",
        "POLLING_TIMEOUT",
    }
)

FORBIDDEN_NAME = re.compile(
    r"(?i)\b(utils?|helpers?)\b|(^|_)(utils?|helpers?)(_|$)|Manager|(^|_)manager(_|$)|Helper|Utils?$"
)
# The form of a log line: ``event=term key=value``.  A value is one word, a field, or fields in quotation marks.
LOG_LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
LOG_LINE = re.compile(r"event=[a-z][a-z0-9_]*( [A-Za-z][A-Za-z0-9_]*=([^ =']+|'[^']*'))*( %s)?")
# `sprocket.common.logs.peer_lines`
PEER_LINES = "peer_lines"
# The interface of a NamedTuple: these names do not clash with its fields.
TUPLE_METHODS = frozenset({"_replace", "_asdict", "_make", "_fields"})
MACHINE_PATH = re.compile("/" + r"(?:work|root|Users|home/\w+|tmp/scratch)" + "/")


@dataclass(frozen=True)
class Finding:
    """One breach: where, which rule, and what was found."""

    line: int
    rule: str
    what: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.rule}: {self.what}"


@lru_cache(maxsize=2)
def _parsed(source: str) -> ast.Module:
    """Return the tree of a file; several rules look at one file in a row."""
    return ast.parse(source)


def seam_uses(source: str) -> Iterator[Finding]:
    """Every use of a clock, disk, network, randomness or sleep that goes past its seam."""
    tree = _parsed(source)
    names = _imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            dotted = _dotted(node, names)
            seam = _seam_of(dotted) if dotted else None
            if dotted and seam:
                yield Finding(node.lineno, seam, dotted)
            elif isinstance(node, ast.Attribute) and node.attr in DISK_METHODS:
                yield Finding(node.lineno, "disk", f".{node.attr}")


def long_functions(source: str) -> Iterator[Finding]:
    """Functions of more than `MAX_FUNCTION_LINES` lines, docstring included."""
    for node in ast.walk(_parsed(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield Finding(node.lineno, "function length", f"{node.name} has {lines} lines")


def long_file(source: str) -> Iterator[Finding]:
    """The file itself, if it has more than `MAX_FILE_LINES` lines."""
    lines = source.count("\n")
    if lines > MAX_FILE_LINES:
        yield Finding(1, "file length", f"{lines} lines")


def forbidden_names(module: str, source: str) -> Iterator[Finding]:
    """Module and class names that say nothing about what is inside."""
    if FORBIDDEN_NAME.search(module):
        yield Finding(1, "name", module)
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.ClassDef) and FORBIDDEN_NAME.search(node.name):
            yield Finding(node.lineno, "name", node.name)


def free_log_lines(source: str) -> Iterator[Finding]:
    """Calls of a logger whose first argument is not a text in the form of a log line."""
    for node, _, line in _log_calls(source):
        if not isinstance(line, ast.Constant) or not LOG_LINE.fullmatch(str(line.value)):
            yield Finding(node.lineno, "log line", ast.unparse(line))


def unlimited_lines(source: str) -> Iterator[Finding]:
    """Events that are written by a logger itself, not by `PEER_LINES`, which limits the lines of a peer."""
    for node, writer, line in _log_calls(source):
        if writer != PEER_LINES and isinstance(line, ast.Constant):
            yield Finding(node.lineno, "unlimited line", str(line.value).partition(" ")[0].removeprefix("event="))


def _log_calls(source: str) -> Iterator[tuple[ast.Call, str, ast.expr]]:
    """Every call that writes a log line: the call, the name of its logger or `PEER_LINES`, and the line's argument."""
    tree = _parsed(source)
    loggers = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_get_logger(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.value
        if node.func.attr in LOG_LEVELS and isinstance(name, ast.Name) and name.id in {*loggers, PEER_LINES}:
            # Logger and peer stand before it, and the level.
            before = 2 * (name.id == PEER_LINES) + (node.func.attr == "log")
            yield node, name.id, node.args[before]


def _is_get_logger(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger"


def uncounted_refusals(source: str) -> Iterator[Finding]:
    """Responses that may refuse a request but are no `Refusal`, so that nothing counts them."""
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in RESPONSES:
            codes = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "code")]
            for code in map(ast.unparse, codes):
                if code.removeprefix("ResponseCode.") not in OUTCOMES:
                    yield Finding(node.lineno, "refusal", f"{node.func.id}({code}, ...)")


def private_names(source: str) -> set[str]:
    """Return the private names of attributes, functions and module variables that a file defines."""
    names = set()
    for node in ast.walk(_parsed(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return {name for name in names if _is_private(name)}


def private_accesses(source: str, product: set[str]) -> Iterator[Finding]:
    """Every ``obj._name`` where `product` has the name, the test file does not, and obj is neither self nor cls."""
    foreign = product - private_names(source)
    for node in ast.walk(_parsed(source)):
        if isinstance(node, ast.Attribute) and node.attr in foreign and not _is_own(node):
            yield Finding(node.lineno, "private access", ast.unparse(node))


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def _is_private(name: str) -> bool:
    return name.startswith("_") and name.strip("_") != "" and not name.endswith("__") and name not in TUPLE_METHODS


def machine_paths(text: str) -> Iterator[Finding]:
    """Absolute paths of one particular machine."""
    for number, line in enumerate(text.splitlines(), 1):
        match = MACHINE_PATH.search(line)
        if match:
            yield Finding(number, "machine path", match.group())


def _imported_names(tree: ast.AST) -> dict[str, str]:
    """Local name -> the dotted name that it was imported from."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _dotted(node: ast.expr, names: dict[str, str]) -> str | None:
    """`node` as the dotted name it stands for; None if it does not start at an import or at ``open``."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    root = names.get(node.id, "open" if node.id == "open" and not parts else None)
    return None if root is None else ".".join([root, *reversed(parts)])


def _seam_of(dotted: str) -> str | None:
    for seam, banned in SEAMS.items():
        for name in banned:
            if dotted == name or (name.endswith(".*") and dotted.startswith(name[:-1])):
                return seam
    return None

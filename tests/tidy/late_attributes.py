"""The rule that an object is complete when it is constructed: nobody else sets its attributes later.

It looks at assignments to an attribute of anything but `self` and `cls`.  An attribute belongs to an object if a class
sets it on `self` or has a setter for it.  It belongs to a record if a class declares it in its body, or if the class
has no methods of its own: records hold values, and the code that fills them may be elsewhere.  Source has no types, so:

- An attribute of objects alone is found wherever it is set, except in the file of such a class.
- An attribute that objects and records have is found where the receiver is itself an attribute (``self.x.y = ...``,
  ``parts.x.y = ...``): a local variable is mostly a record.

A listener that adds itself to a list ``on_...`` sets no attribute.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.tidy.rules import Finding

RULE = "late attribute"


@dataclass
class Attributes:
    """Files that have a class with an attribute, by the attribute's name."""

    of_objects: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    of_records: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def attributes(trees: Mapping[str, ast.Module]) -> Attributes:
    """Return the attributes of all classes in these files."""
    found = Attributes()
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                _note_class(found, name, node)
    return found


def _note_class(found: Attributes, name: str, node: ast.ClassDef) -> None:
    functions = [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    has_methods = any(not one.name.startswith("__") for one in functions)
    is_protocol = any(isinstance(one, ast.Name) and one.id == "Protocol" for one in node.bases)
    for one in node.body:
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and not is_protocol:
            found.of_records[one.target.id].add(name)
    for function in functions:
        if any(isinstance(one, ast.Attribute) and one.attr == "setter" for one in function.decorator_list):
            found.of_objects[function.name].add(name)
        for one in ast.walk(function):
            if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store) and _is_own(one):
                (found.of_objects if has_methods else found.of_records)[one.attr].add(name)


def late_attributes(name: str, tree: ast.Module, known: Attributes) -> Iterator[Finding]:
    """Every assignment in the file `name` that sets an attribute of another object."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Store) or _is_own(node):
            continue
        owners, records = known.of_objects.get(node.attr, set()), known.of_records.get(node.attr, set())
        is_clear = not records or isinstance(node.value, ast.Attribute)
        if owners and is_clear and name not in owners | records:
            yield Finding(node.lineno, RULE, ast.unparse(node))


def _is_own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")

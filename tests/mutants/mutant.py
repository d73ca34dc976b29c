"""One planted bug."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One planted bug: where, what becomes what, which promise that breaks, and the tests that are to see it."""

    name: str
    file: str
    old: str
    new: str
    why: str
    tests: tuple[str, ...]

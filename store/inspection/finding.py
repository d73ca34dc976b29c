"""Findings of a check: what is wrong, where, how bad it is, and what repair would do."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

# Further findings of one kind are counted but not kept.
MAX_OF_A_KIND: Final = 200


class Severity(StrEnum):
    """Severity of a finding."""

    LOSS = "loss"  # messages cannot be read, or a broker would not start
    WRONG = "wrong"  # files disagree; nothing is lost, because one can be rebuilt from the other
    NOTE = "note"  # worth knowing; nothing is wrong


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.  `offset` counts bytes of the file; `path` is relative to the store's root."""

    kind: str
    severity: Severity
    path: str
    text: str
    repair: str = ""
    offset: int | None = None
    size_bytes: int | None = None

    def document(self) -> dict[str, object]:
        """Return the finding as JSON."""
        fields: dict[str, object] = {"kind": self.kind, "severity": str(self.severity), "file": self.path}
        if self.offset is not None:
            fields["offset"] = self.offset
        if self.size_bytes is not None:
            fields["sizeBytes"] = self.size_bytes
        return fields | {"text": self.text, "repair": self.repair}


@dataclass
class Findings:
    """Findings in the order of the check, limited per kind."""

    kept: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    worst: Severity | None = None

    def add(
        self,
        kind: str,
        severity: Severity,
        path: str,
        text: str,
        repair: str = "",
        offset: int | None = None,
        size_bytes: int | None = None,
    ) -> None:
        """Add a finding; the arguments are the fields of `Finding`."""
        self.counts[kind] += 1
        if self.counts[kind] <= MAX_OF_A_KIND:
            self.kept.append(Finding(kind, severity, path, text, repair, offset, size_bytes))
        order = list(Severity)
        if self.worst is None or order.index(severity) < order.index(self.worst):
            self.worst = severity

    @property
    def is_fine(self) -> bool:
        """Whether all findings are notes."""
        return self.worst in (None, Severity.NOTE)

    def suppressed(self) -> dict[str, int]:
        """Number of findings per kind that were counted and not kept."""
        return {kind: count - MAX_OF_A_KIND for kind, count in self.counts.items() if count > MAX_OF_A_KIND}

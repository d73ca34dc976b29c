"""What all plans and planners have in common."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

from broker.plan.table import PlanTable, Refused
from broker.plan.version import PlanVersion


class ServedPlan:
    """Plan to serve requests; `needs_handler` says why a kernel leaves them to the handler."""

    __slots__ = ()

    needs_handler: Enum | None
    is_lasting: bool

    @property
    def is_for_kernel(self) -> bool:
        """Whether a kernel serves requests with this plan."""
        return self.needs_handler is None


Key = TypeVar("Key", bound=Hashable)
P = TypeVar("P", bound=ServedPlan)


class Planner(ABC, Generic[Key, P]):
    """Planner of one kind of request: all rules about which of them are served, and how."""

    def __init__(self, version: PlanVersion) -> None:
        self.version = version
        self._table: PlanTable[Key, P | Refused] = PlanTable(version)

    def plan(self, key: Key) -> P | Refused:
        """Return the plan for requests with a key, or why they are refused."""
        return self._table.plan(key, self.new_plan)

    @abstractmethod
    def new_plan(self, key: Key) -> P | Refused:
        """Do as `plan`, from what there is now."""

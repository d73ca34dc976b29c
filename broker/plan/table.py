"""Table of plans, and the plan to refuse a request."""

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.plan.version import PlanVersion
from sprocket.common.errors import RequestError
from sprocket.common.refusal_reasons import Reason

# A table that is full drops all its plans.
MAX_PLANS: Final = 4096
# Plans for longer texts, such as expressions of consumers, are not kept.
MAX_KEPT_CHARS: Final = 4096
# Stands for the address of the client in the remark of a refusal.
PEER: Final = "\0"


class Refused(NamedTuple):
    """Plan to refuse requests: `reason` is for operators, the other fields make the response."""

    code: int
    remark: str
    reason: Reason | None = None
    fields: dict[str, str] | None = None
    is_lasting: bool = True

    @property
    def is_for_kernel(self) -> bool:
        """False: the handler refuses the request."""
        return False

    def error(self, peer: tuple[str, int]) -> RequestError:
        """Return the error that refuses the request of a client."""
        return RequestError(self.code, self.remark.replace(PEER, f"{peer[0]}:{peer[1]}"), self.reason, self.fields)


class Plan(Protocol):
    """What all plans have in common."""

    @property
    def is_lasting(self) -> bool:
        """Whether the plan holds until the version rises.  If not, it is for one request."""

    @property
    def is_for_kernel(self) -> bool:
        """Whether a kernel serves requests with this plan; if not, the handler does."""


Key = TypeVar("Key")
P = TypeVar("P", bound=Plan)


class PlanTable(Generic[Key, P]):
    """Plans by what headers say, for as long as nothing has changed.  Lives in the event loop's thread."""

    def __init__(self, version: PlanVersion, max_plans: int = MAX_PLANS) -> None:
        self._version = version
        self._max_plans = max_plans
        self._number = version.number
        self._plans: dict[Key, P] = {}

    def current(self) -> dict[Key, P]:
        """Return the plans that are valid now.  A kernel reads them without a call; it must not change them."""
        if self._number != self._version.number:
            self._plans.clear()
            self._number = self._version.number
        return self._plans

    def plan(self, key: Key, make: Callable[[Key], P]) -> P:
        """Return the plan for a key; if there is none, that which `make` returns.  Raises what `make` raises.

        `make` may raise the version itself, as a planner does that creates a group.
        """
        plan = self.current().get(key)
        if plan is None:
            plan = make(key)
            self.keep(key, plan)
        return plan

    def keep(self, key: Key, plan: P) -> None:
        """Keep a plan that was just made, if it is lasting."""
        plans = self.current()
        if plan.is_lasting:
            if len(plans) >= self._max_plans:
                plans.clear()
            plans[key] = plan

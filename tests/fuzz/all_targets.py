"""All targets by name."""

from typing import Final

from tests.fuzz.ha_targets import HA_TARGETS
from tests.fuzz.raft_targets import RAFT_TARGETS
from tests.fuzz.security_targets import SECURITY_TARGETS
from tests.fuzz.send_targets import SEND_TARGETS
from tests.fuzz.store_targets import STORE_TARGETS
from tests.fuzz.target import Target
from tests.fuzz.text_targets import TEXT_TARGETS
from tests.fuzz.token_targets import TOKEN_TARGETS
from tests.fuzz.twins.ack_targets import ENGINE_ACK_TARGETS
from tests.fuzz.twins.client_targets import ENGINE_CLIENT_TARGETS
from tests.fuzz.twins.column_targets import ENGINE_COLUMN_TARGETS
from tests.fuzz.twins.end_targets import ENGINE_END_TARGETS
from tests.fuzz.twins.filter_targets import ENGINE_FILTER_TARGETS
from tests.fuzz.twins.gate_targets import ENGINE_GATE_TARGETS
from tests.fuzz.twins.header_targets import ENGINE_HEADER_TARGETS
from tests.fuzz.twins.intake_targets import ENGINE_INTAKE_TARGETS
from tests.fuzz.twins.message_targets import ENGINE_MESSAGE_TARGETS
from tests.fuzz.twins.move_targets import ENGINE_MOVE_TARGETS
from tests.fuzz.twins.pop_targets import ENGINE_POP_TARGETS
from tests.fuzz.twins.pull_targets import ENGINE_PULL_TARGETS
from tests.fuzz.twins.read_targets import ENGINE_READ_TARGETS
from tests.fuzz.twins.scan_targets import ENGINE_TARGETS
from tests.fuzz.twins.send_targets import ENGINE_SEND_TARGETS
from tests.fuzz.twins.session_targets import ENGINE_SESSION_TARGETS
from tests.fuzz.twins.timer_targets import ENGINE_TIMER_TARGETS
from tests.fuzz.twins.wire_targets import ENGINE_WIRE_TARGETS
from tests.fuzz.wire_targets import WIRE_TARGETS

# Both engines are given the same input.
TWIN_TARGETS: Final[tuple[Target, ...]] = (
    *ENGINE_TARGETS,
    *ENGINE_WIRE_TARGETS,
    *ENGINE_SEND_TARGETS,
    *ENGINE_HEADER_TARGETS,
    *ENGINE_READ_TARGETS,
    *ENGINE_PULL_TARGETS,
    *ENGINE_CLIENT_TARGETS,
    *ENGINE_GATE_TARGETS,
    *ENGINE_ACK_TARGETS,
    *ENGINE_POP_TARGETS,
    *ENGINE_FILTER_TARGETS,
    *ENGINE_TIMER_TARGETS,
    *ENGINE_INTAKE_TARGETS,
    *ENGINE_MOVE_TARGETS,
    *ENGINE_END_TARGETS,
    *ENGINE_COLUMN_TARGETS,
    *ENGINE_SESSION_TARGETS,
    *ENGINE_MESSAGE_TARGETS,
)
TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for target in (
        *WIRE_TARGETS,
        *STORE_TARGETS,
        *TEXT_TARGETS,
        *HA_TARGETS,
        *RAFT_TARGETS,
        *SECURITY_TARGETS,
        *TOKEN_TARGETS,
        *SEND_TARGETS,
        *TWIN_TARGETS,
    )
}

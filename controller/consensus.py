"""Which consensus a controller uses: Raft, or in a test one member that agrees with itself.

A file of its own: the server takes the function as an argument, so that it does not depend on Raft's files and sockets.
"""

from collections.abc import Callable

from controller.config import ControllerConfig
from ha.raft.consensus import Consensus, StateMachine
from sprocket.common.clock import Clock
from sprocket.common.errors import ConfigError, SprocketError

MakeConsensus = Callable[[ControllerConfig, StateMachine, Clock, Callable[[SprocketError], None]], Consensus]


def raft(
    config: ControllerConfig, machine: StateMachine, clock: Clock, on_fatal: Callable[[SprocketError], None]
) -> Consensus:
    """Return the member of the controllers' Raft group that `config` describes.  Raises ConfigError."""
    raise ConfigError("not there yet")

"""The Raft member of a controller: its files, its port and what it needs of the world.

The server takes the function that makes it as an argument: tests of what stands above Raft give one member that agrees
with itself.
"""

import asyncio
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from controller.config import ControllerConfig
from ha.raft.consensus import Consensus, StateMachine
from ha.raft.core import Group
from ha.raft.member import RaftMember, Seams
from ha.raft.members import check_members
from ha.raft.peers import Security, TcpPeers
from ha.raft.storage import Storage
from ha.shared_secret import derived_secret, read_secret
from sprocket.common.clock import Clock
from sprocket.common.errors import SprocketError
from sprocket.remoting.tls.watch import ClientTls, ServerTls
from store.disk.disk import RealDisk

# Purpose of the derived key, because the account's key also signs requests.
_PURPOSE: Final = b"sprocket controllers 1"


@dataclass(frozen=True)
class Surroundings:
    """What a controller's consensus needs of the server: `on_fatal` gets the error that ends it."""

    clock: Clock
    on_fatal: Callable[[SprocketError], None]
    server_tls: ServerTls
    client_tls: ClientTls | None


class ControllerConsensus(Consensus, Protocol):
    """A consensus whose members may come back with an empty disk, if an operator says so."""

    async def forget_member(self, member_id: str, *, timeout_ms: int) -> None:
        """Let `member_id` come back with another, empty disk.

        Raises ConsensusError, also while that member is connected or unknown.
        """


MakeConsensus = Callable[[ControllerConfig, StateMachine, Surroundings], ControllerConsensus]


def raft(config: ControllerConfig, machine: StateMachine, around: Surroundings) -> ControllerConsensus:
    """Return the member of the controllers' Raft group that `config` describes.  Raises ConfigError."""
    members, own_id = config.raft_members, config.controller_dleger_self_id
    client_tls = around.client_tls
    security = Security(
        secrets.token_bytes,
        _secret(config),
        around.server_tls,
        (lambda: None) if client_tls is None else client_tls.context,
    )
    return RaftMember(
        Group(config.controller_dleger_group, members, own_id),
        machine,
        Storage(RealDisk(), config.controller_store_path, secrets.token_bytes),
        TcpPeers(check_members(members, own_id), members, security),
        Seams(around.clock, random.random, _in_thread),
        on_failure=around.on_fatal,
    )


def _secret(config: ControllerConfig) -> bytes:
    """Return the secret of the group, empty if there is none.  Raises ConfigError."""
    if config.ha_secret_file:
        return read_secret(Path(config.ha_secret_file))
    account = config.inner_credentials()
    return b"" if account is None else derived_secret(account, _PURPOSE)


async def _in_thread(work: Callable[[], None]) -> None:
    await asyncio.to_thread(work)

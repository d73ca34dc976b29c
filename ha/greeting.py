"""The two ends of a greeting: machines that are fed with bytes, see `ha.hello`.

Without a secret at both ends nothing is proved.  A secret at one end alone ends the connection.  Its owner wants no
stranger, and would not notice that the other end never asks for a proof.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ha.hello import (
    EPOCH_VERSION,
    NONCE_BYTES,
    PROOF_BYTES,
    VERSION,
    VERSIONS,
    GreetingReader,
    Hello,
    Identity,
    Kind,
    Standing,
    Welcome,
    decode_hello,
    decode_welcome,
    is_proof,
    master_proof,
    sealed,
    slave_proof,
)
from sprocket.common.errors import ProtocolError

_SECRET: Final = "haSecretFile or, without it, the account with which brokers sign"
_SAME: Final = f"{_SECRET}, the same at both ends"
_DIFFER: Final = f"the two ends have different secrets ({_SECRET})"


@dataclass(frozen=True)
class Credentials:
    """Identity and secret of this end.

    With an empty `secret` nothing is proved.  `random_bytes(n)` returns `n` bytes that cannot be guessed.
    """

    identity: Identity
    random_bytes: Callable[[int], bytes]
    secret: bytes = b""
    # Whether an end with the plain protocol, which proves nothing, is accepted although there is a secret.
    allow_plain: bool = False
    # The address at which slaves are told to connect to this end; empty if none was published.
    own_address: Callable[[], str] = lambda: ""

    @property
    def admits_plain(self) -> bool:
        """Whether an end that proves nothing is accepted."""
        return self.allow_plain or not self.secret


class MasterGreeting:
    """The master's end of a greeting.

    With `in_controller_mode` the epoch is that of the controllers, and only slaves with version 2 are accepted; else
    only those with version 1.
    """

    def __init__(
        self, credentials: Credentials, epoch: int, *, counts_flushed: bool = False, in_controller_mode: bool = False
    ) -> None:
        self._credentials = credentials
        self._epoch = epoch
        self._counts_flushed = counts_flushed
        self._version = EPOCH_VERSION if in_controller_mode else VERSION
        self._reader = GreetingReader(VERSIONS)
        self._hello: Hello | None = None
        self._welcome: Welcome | None = None
        self.is_done = False
        self.refusal = ""
        # An epoch after this master's, known to a slave that has proved itself: this master was replaced.  -1: none.
        self.newer_epoch = -1

    @property
    def slave(self) -> Identity | None:
        """The slave's identity as it claims it; None before its HELLO."""
        return self._hello.identity if self._hello is not None else None

    @property
    def standing(self) -> Standing:
        """What a slave in controller mode says of itself."""
        return (self._hello and self._hello.standing) or Standing()

    @property
    def rest(self) -> bytes:
        """Bytes that came after the greeting."""
        return self._reader.rest

    def received(self, data: bytes) -> bytes:
        """Take `data` and return what to write.  With `refusal` set, close the connection after writing it.

        Raises ProtocolError for bytes that are no greeting.
        """
        answer = b""
        if self._hello is None:
            body = self._reader.feed(data, Kind.HELLO)
            if body is None:
                return b""
            answer, data = self._answer(decode_hello(body, self._reader.version)), b""
            if self.refusal:
                return answer
        body = self._reader.feed(data, Kind.PROOF)
        if body is not None:
            self._check(body)
        return answer

    def _answer(self, hello: Hello) -> bytes:
        own = self._credentials
        self._hello = hello
        self.refusal = self._reason_against(hello)
        nonce = own.random_bytes(NONCE_BYTES)
        welcome = Welcome(bool(own.secret), nonce, own.identity, self._epoch, self.refusal, self._counts_flushed)
        if own.secret and not self.refusal:
            welcome = replace(welcome, proof=master_proof(own.secret, hello, welcome))
        self._welcome = welcome
        return sealed(Kind.WELCOME, welcome.body(), hello.version)

    def _reason_against(self, hello: Hello) -> str:
        own, other = self._credentials.identity, hello.identity
        if hello.version != self._version:
            modes = "is not", "is"
            here, there = modes[self._version == EPOCH_VERSION], modes[hello.version == EPOCH_VERSION]
            return (
                f"this master {here} in controller mode, the slave {there}: set enableControllerMode and "
                "controllerAddr alike on all brokers of the group"
            )
        if (own.cluster, own.broker_name) != (other.cluster, other.broker_name):
            return f"this is the master of {own.cluster}/{own.broker_name}, not of {other.cluster}/{other.broker_name}"
        if other.broker_id == own.broker_id:
            return f"the slave has the master's own brokerId {own.broker_id}"
        own_address = self._credentials.own_address()
        if self._credentials.secret and hello.dialed and own_address and hello.dialed != own_address:
            # An impostor could pass the greeting on to the true master, and would be taken for it.
            return f"the slave connected to {hello.dialed}, this is {own_address}: somebody relays the greeting"
        return _one_sided(bool(self._credentials.secret), hello.has_secret, "slave")

    def _check(self, body: bytes) -> None:
        secret, hello, welcome = self._credentials.secret, self._hello, self._welcome
        assert hello is not None and welcome is not None
        expected = slave_proof(secret, hello, welcome) if secret else bytes(PROOF_BYTES)
        if not is_proof(expected, body):
            self.refusal = f"the slave's proof is wrong: {_DIFFER}"
        elif hello.standing is not None and hello.standing.epoch > self._epoch:
            self.newer_epoch = hello.standing.epoch
            self.refusal = f"the slave knows a master of epoch {self.newer_epoch}, epoch {self._epoch} is over"
        self.is_done = not self.refusal


class SlaveGreeting:
    """The slave's end of a greeting.

    `dialed` is the address that the slave connected to; empty if the slave's own configuration names it.  Both proofs
    contain it.  So a greeting that an impostor relays to the true master proves nothing.  `standing` is None outside
    controller mode.
    """

    def __init__(self, credentials: Credentials, dialed: str = "", standing: Standing | None = None) -> None:
        self._credentials = credentials
        nonce = credentials.random_bytes(NONCE_BYTES)
        self._hello = Hello(bool(credentials.secret), nonce, credentials.identity, dialed, standing)
        self._reader = GreetingReader([self._hello.version])
        self.welcome: Welcome | None = None

    @property
    def rest(self) -> bytes:
        """Bytes that came after the greeting."""
        return self._reader.rest

    def begin(self) -> bytes:
        """Return the first message to write, HELLO."""
        return sealed(Kind.HELLO, self._hello.body(), self._hello.version)

    def received(self, data: bytes | memoryview) -> bytes:
        """Take `data` and return what to write: the proof, once `welcome` is set and the greeting is done.

        Raises ProtocolError if the master refuses, if its proof is missing or wrong, or if the bytes are no greeting.
        """
        body = self._reader.feed(data, Kind.WELCOME)
        if body is None:
            return b""
        welcome, own = decode_welcome(body), self._credentials
        reason = welcome.refusal and f"the master refuses: {welcome.refusal}"
        reason = reason or self._reason_against(welcome)
        if reason:
            raise ProtocolError("ha_hello", reason)
        self.welcome = welcome
        proof = slave_proof(own.secret, self._hello, welcome) if own.secret else bytes(PROOF_BYTES)
        return sealed(Kind.PROOF, proof, self._hello.version)

    def _reason_against(self, welcome: Welcome) -> str:
        own, other, secret = self._credentials.identity, welcome.identity, self._credentials.secret
        if (own.cluster, own.broker_name) != (other.cluster, other.broker_name):
            return f"that is the master of {other.cluster}/{other.broker_name}"
        reason = _one_sided(bool(secret), welcome.has_secret, "master")
        if not reason and secret and not is_proof(master_proof(secret, self._hello, welcome), welcome.proof):
            reason = f"the master's proof is wrong: {_DIFFER}"
        return reason


def _one_sided(here: bool, there: bool, other: str) -> str:
    if here and not there:
        return f"the {other} has no secret, and this broker requires one: {_SAME}"
    if there and not here:
        return f"the {other} requires a secret: {_SAME}"
    return ""

"""The two ends of a greeting: machines that are fed with bytes, see `ha.hello`.

Without a secret at either end nothing is proved.  A secret at one end alone ends the connection: whoever set it wants
no stranger, and would not notice that nobody asks.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ha.hello import (
    NONCE_BYTES,
    PROOF_BYTES,
    GreetingReader,
    Hello,
    Identity,
    Kind,
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
    """Who this end is, and what it knows.

    Empty `secret`: nothing is proved.  `random_bytes` gives so many bytes that nobody can guess.
    """

    identity: Identity
    random_bytes: Callable[[int], bytes]
    secret: bytes = b""
    # Whether an end that speaks the plain protocol, which proves nothing, is welcome although there is a secret.
    allow_plain: bool = False
    # Where slaves are told to find this end's port for slaves; empty if nobody is told.
    own_address: Callable[[], str] = lambda: ""

    @property
    def admits_plain(self) -> bool:
        """Whether an end that can prove nothing may be talked to."""
        return self.allow_plain or not self.secret


class MasterGreeting:
    """A master greets one slave."""

    def __init__(self, credentials: Credentials, epoch: int, *, counts_flushed: bool = False) -> None:
        self._credentials = credentials
        self._epoch = epoch
        self._counts_flushed = counts_flushed
        self._reader = GreetingReader()
        self._hello: Hello | None = None
        self._welcome: Welcome | None = None
        self.is_done = False
        self.refusal = ""

    @property
    def slave(self) -> Identity | None:
        """Who the slave says that it is; None until it has."""
        return self._hello.identity if self._hello is not None else None

    @property
    def rest(self) -> bytes:
        """What came behind the greeting."""
        return self._reader.rest

    def received(self, data: bytes) -> bytes:
        """What to write for it.  With `refusal` the connection is to be closed behind that.

        Raises ProtocolError for what is no greeting.
        """
        answer = b""
        if self._hello is None:
            body = self._reader.feed(data, Kind.HELLO)
            if body is None:
                return b""
            answer, data = self._answer(decode_hello(body)), b""
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
        return sealed(Kind.WELCOME, welcome.body())

    def _reason_against(self, hello: Hello) -> str:
        own, other = self._credentials.identity, hello.identity
        if (own.cluster, own.broker_name) != (other.cluster, other.broker_name):
            return f"this is the master of {own.cluster}/{own.broker_name}, not of {other.cluster}/{other.broker_name}"
        if other.broker_id == own.broker_id:
            return f"the slave has the master's own brokerId {own.broker_id}"
        own_address = self._credentials.own_address()
        if self._credentials.secret and hello.dialed and own_address and hello.dialed != own_address:
            # A stranger that passes a greeting on to the true master would be taken for it.
            return f"the slave connected to {hello.dialed}, this is {own_address}: somebody passes the greeting on"
        return _one_sided(bool(self._credentials.secret), hello.has_secret, "slave")

    def _check(self, body: bytes) -> None:
        secret, hello, welcome = self._credentials.secret, self._hello, self._welcome
        assert hello is not None and welcome is not None
        expected = slave_proof(secret, hello, welcome) if secret else bytes(PROOF_BYTES)
        if not is_proof(expected, body):
            self.refusal = f"the slave's proof is wrong: {_DIFFER}"
        self.is_done = not self.refusal


class SlaveGreeting:
    """A slave greets its master.

    `dialed` is the address that it connected to, empty if its own configuration names it.  It is part of what both ends
    prove, so a greeting that a stranger passes on to the true master proves nothing.
    """

    def __init__(self, credentials: Credentials, dialed: str = "") -> None:
        self._credentials = credentials
        self._reader = GreetingReader()
        nonce = credentials.random_bytes(NONCE_BYTES)
        self._hello = Hello(bool(credentials.secret), nonce, credentials.identity, dialed)
        self.welcome: Welcome | None = None

    @property
    def rest(self) -> bytes:
        """What came behind the greeting."""
        return self._reader.rest

    def begin(self) -> bytes:
        """The first thing to write."""
        return sealed(Kind.HELLO, self._hello.body())

    def received(self, data: bytes | memoryview) -> bytes:
        """What to write for it: the proof, with which the greeting is done and `welcome` is set.

        Raises ProtocolError for a master that refuses, one that cannot prove what it should, and for what is no
        greeting.
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
        return sealed(Kind.PROOF, slave_proof(own.secret, self._hello, welcome) if own.secret else bytes(PROOF_BYTES))

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
        return f"the {other} shows no secret, and one is asked for here: {_SAME}"
    if there and not here:
        return f"the {other} demands a secret: {_SAME}"
    return ""

"""Greetings: identities, and proofs of the same secret."""

from dataclasses import replace

import pytest

from ha.greeting import MasterGreeting, SlaveGreeting
from ha.hello import MAGIC_BYTES, GreetingReader, Kind, Welcome, decode_hello, decode_welcome, sealed, slave_proof
from ha.protocol import ReportReader
from sprocket.common.errors import ProtocolError
from tests.ha.sessions import EPOCH, Ends, SessionMemoryLog, credentials, refusal

LOG = b"0123456789" * 10
SECRET = b"a long secret that both ends read"


def ends(**changes: object) -> Ends:
    return Ends(SessionMemoryLog(LOG), SessionMemoryLog(LOG[:10]), **changes)  # type: ignore[arg-type] # by name


@pytest.mark.parametrize("secret", [b"", SECRET])
def test_ends_that_know_the_same_begin(secret: bytes) -> None:
    both = ends(master=credentials(0, secret), slave=credentials(1, secret))
    assert refusal(both) == ""
    assert both.slave_log.content == LOG
    assert str(both.master.identity) == "C/a/1 store store1"
    assert both.slave.epoch == EPOCH


def test_a_wrong_secret_is_found_by_both_ends() -> None:
    both = ends(master=credentials(0, SECRET), slave=credentials(1, b"another"))
    assert "different secrets" in refusal(both)
    assert both.slave_log.content == LOG[:10]
    # A slave without a secret of its own gets nothing either.
    master = MasterGreeting(credentials(0, SECRET), EPOCH)
    hello = decode_hello(_body(SlaveGreeting(credentials(1, b"guess")).begin(), Kind.HELLO))
    master.received(sealed(Kind.HELLO, hello.body()))
    master.received(sealed(Kind.PROOF, bytes(32)))
    assert not master.is_done
    assert "different secrets" in master.refusal


@pytest.mark.parametrize(("master", "slave"), [(SECRET, b""), (b"", SECRET)])
def test_a_secret_at_one_end_alone_is_refused_with_what_to_do(master: bytes, slave: bytes) -> None:
    reason = refusal(ends(master=credentials(0, master), slave=credentials(1, slave)))
    assert "haSecretFile" in reason


def test_a_slave_does_not_follow_a_master_that_claims_to_demand_nothing() -> None:
    slave = SlaveGreeting(credentials(1, SECRET))
    slave.begin()
    welcome = Welcome(False, bytes(32), credentials(0).identity, EPOCH)
    with pytest.raises(ProtocolError, match="has no secret"):
        slave.received(sealed(Kind.WELCOME, welcome.body()))


@pytest.mark.parametrize(
    "slave", [credentials(1, cluster="D"), credentials(1, broker_name="b"), credentials(0, store_id="other")]
)
def test_a_slave_of_somebody_else_is_refused(slave: object) -> None:
    both = ends(slave=slave)
    assert refusal(both)
    assert both.master.identity is None


def test_a_proof_is_worth_nothing_in_another_connection() -> None:
    first = MasterGreeting(credentials(0, SECRET, seed=1), EPOCH)
    slave = SlaveGreeting(credentials(1, SECRET))
    hello = slave.begin()
    proof = slave.received(first.received(hello))
    first.received(proof)
    assert first.is_done
    for seed, epoch in ((2, EPOCH), (1, EPOCH + 1)):
        again = MasterGreeting(credentials(0, SECRET, seed=seed), epoch)
        again.received(hello)
        again.received(proof)
        assert not again.is_done
        assert again.refusal


def test_the_masters_own_proof_sent_back_is_none() -> None:
    master = MasterGreeting(credentials(0, SECRET), EPOCH)
    welcome = decode_welcome(_body(master.received(SlaveGreeting(credentials(1, SECRET)).begin()), Kind.WELCOME))
    master.received(sealed(Kind.PROOF, welcome.proof))
    assert not master.is_done


def test_the_secret_is_never_sent() -> None:
    master, slave = MasterGreeting(credentials(0, SECRET), EPOCH), SlaveGreeting(credentials(1, SECRET))
    hello = slave.begin()
    welcome = master.received(hello)
    sent = hello + welcome + slave.received(welcome)
    assert all(SECRET[at : at + 4] not in sent for at in range(len(SECRET) - 4))


def test_a_proof_depends_on_every_word() -> None:
    hello = decode_hello(_body(SlaveGreeting(credentials(1, SECRET)).begin(), Kind.HELLO))
    welcome = Welcome(True, bytes(32), credentials(0).identity, EPOCH)
    proofs = {
        slave_proof(SECRET, hello, welcome),
        slave_proof(SECRET, hello, Welcome(True, bytes(32), credentials(0).identity, EPOCH + 1)),
        slave_proof(SECRET, hello, Welcome(True, bytes(31) + b"x", credentials(0).identity, EPOCH)),
        slave_proof(SECRET, hello, Welcome(True, bytes(32), credentials(0, store_id="x").identity, EPOCH)),
        slave_proof(SECRET[1:], hello, welcome),
    }
    assert len(proofs) == 5


def test_no_plain_slave_begins_like_a_session() -> None:
    assert MAGIC_BYTES[0] & 0x80
    with pytest.raises(ProtocolError):
        ReportReader().feed(MAGIC_BYTES)


def test_a_damaged_greeting_is_refused() -> None:
    hello = SlaveGreeting(credentials(1, SECRET)).begin()
    for at in range(len(hello)):
        damaged = bytearray(hello)
        damaged[at] ^= 0x10
        try:
            assert MasterGreeting(credentials(0), EPOCH).received(bytes(damaged)) == b""
        except ProtocolError:
            continue
        assert 9 <= at < 13  # a length: the reader waits for more bytes


def _body(message: bytes, kind: Kind) -> bytes:
    body = GreetingReader().feed(message, kind)
    assert body is not None
    return body


@pytest.mark.parametrize(("dialed", "is_refused"), [("", False), ("10.0.0.1:10912", False), ("10.0.0.66:10912", True)])
def test_a_greeting_counts_only_at_the_address_that_the_slave_connected_to(dialed: str, is_refused: bool) -> None:
    """An impostor that a name server calls the master can relay every byte to the true one."""
    own = replace(credentials(0, SECRET), own_address=lambda: "10.0.0.1:10912")
    master, slave = MasterGreeting(own, 1), SlaveGreeting(credentials(1, SECRET), dialed)
    welcome = master.received(slave.begin())
    assert bool(master.refusal) is is_refused
    if is_refused:
        assert "relays the greeting" in master.refusal
        with pytest.raises(ProtocolError, match="relays the greeting"):
            slave.received(welcome)
    else:
        master.received(slave.received(welcome))
        assert master.is_done


def test_an_address_that_was_changed_on_the_way_proves_nothing() -> None:
    own = replace(credentials(0, SECRET), own_address=lambda: "10.0.0.1:10912")
    slave = SlaveGreeting(credentials(1, SECRET), "10.0.0.66:10912")
    hello = decode_hello(_body(slave.begin(), Kind.HELLO))
    forged = sealed(Kind.HELLO, replace(hello, dialed="10.0.0.1:10912").body())
    with pytest.raises(ProtocolError, match="proof is wrong"):
        slave.received(MasterGreeting(own, 1).received(forged))

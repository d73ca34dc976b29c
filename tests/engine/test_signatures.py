"""Digests, signatures and proofs of the compiled engine beside `hashlib` and `hmac`."""

import hashlib
import hmac
import random
from base64 import b64encode

import pytest

from sprocket.engine.choice import native

signatures = native("sprocket.remoting.signatures_native")
pytestmark = pytest.mark.skipif(signatures is None, reason="the compiled engine is not built")


@pytest.mark.parametrize("by_instructions", [False, True])
def test_digests_are_those_of_hashlib(by_instructions: bool) -> None:
    """All sizes around whole blocks and around the room for the size; the second form is that of this processor."""
    assert signatures is not None
    chance = random.Random(by_instructions)
    if signatures.digest(b"", by_instructions) is None:
        pytest.skip("the processor has no instructions for SHA")
    for size in (*range(400), 1000, 4095, 4096, 4097, 100_003):
        content = chance.randbytes(size)
        assert signatures.digest(content, by_instructions) == hashlib.sha1(content).digest(), size


def test_signatures_are_those_of_hmac() -> None:
    assert signatures is not None
    chance = random.Random(2)
    for size in range(300):
        key, content = "k" * (size % 140), chance.randbytes(size)
        expected = b64encode(hmac.new(key.encode(), content, hashlib.sha1).digest())
        assert signatures.SigningKey("a", key).signature(content) == expected
    large = chance.randbytes(100_001)
    expected = b64encode(hmac.new("schlüssel".encode(), large, hashlib.sha1).digest())
    assert signatures.SigningKey("a", "schlüssel").signature(large) == expected


def test_a_proof_covers_the_names_that_were_admitted() -> None:
    assert signatures is not None
    proof = signatures.Proof(signatures.SigningKey("alice", "secret"), 3)
    proof.admit("Orders", "G")
    proof.admit("Bills")
    assert proof.covers("Orders", "G") and proof.covers("Bills")
    for names in (("Orders",), ("Orders", "H"), ("OrdersG", ""), ("Order", "sG"), ("Bills", "G"), ("", "Bills")):
        assert not proof.covers(*names)
    # JSON can spell a text that has no bytes in UTF-8.
    proof.admit("\ud800")
    assert proof.covers("\ud800") and not proof.covers("\ud801")


def test_a_proof_forgets_all_names_when_there_are_too_many() -> None:
    assert signatures is not None
    proof = signatures.Proof(signatures.SigningKey("alice", "secret"), 2)
    for name in ("A", "B", "C"):
        proof.admit(name)
    assert [proof.covers(name) for name in ("A", "B", "C")] == [False, False, True]

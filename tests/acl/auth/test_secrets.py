"""Sealed passwords open with their key and for their owner alone; servers without users load no cryptography."""

import os
import subprocess
import sys

import pytest

from acl.auth.secrets import KEY_BYTES, Seal, SealBroken

KEY = bytes(range(KEY_BYTES))


def test_a_password_opens_with_its_key_and_for_its_owner() -> None:
    seal = Seal(KEY, os.urandom)
    sealed = seal.sealed_text("secret", "Alice")
    assert "secret" not in sealed
    assert Seal(KEY, os.urandom).opened_text(sealed, "Alice") == "secret"


@pytest.mark.parametrize(("key", "owner"), [(KEY[::-1], "Alice"), (KEY, "Bob")])
def test_another_key_or_owner_opens_nothing(key: bytes, owner: str) -> None:
    sealed = Seal(KEY, os.urandom).sealed_text("secret", "Alice")
    with pytest.raises(SealBroken, match=owner):
        Seal(key, os.urandom).opened_text(sealed, owner)


def test_servers_load_the_library_with_their_first_seal() -> None:
    program = "import sys, broker.server, namesrv.server; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"

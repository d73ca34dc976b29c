"""Signatures, against the standard library's HMAC."""

import base64
import hmac

import pytest

from sprocket.remoting.credentials import Credentials, signature


@pytest.mark.parametrize("key", ["k", "x" * 63, "x" * 64, "x" * 65, "ü" * 100, ""])
@pytest.mark.parametrize("body", [b"", b"body", bytearray(b"buffer"), memoryview(b"view" * 40_000)])
def test_a_signature_is_the_hmac_of_the_values_in_the_order_of_names(
    key: str, body: bytes | bytearray | memoryview
) -> None:
    fields = {"b": "Orders", "AccessKey": "app", "a": "PG", "Signature": "left out", "z": "ü"}
    wanted = hmac.digest(key.encode(), "appPGOrdersü".encode() + bytes(body), "sha1")
    assert signature(key, fields, body) == base64.b64encode(wanted).decode()


@pytest.mark.parametrize("fields", [{}, {"a": "1"}, {"Signature": "x"}])
def test_few_fields_are_signed_as_many_are(fields: dict[str, str]) -> None:
    wanted = hmac.digest(b"k", fields.get("a", "").encode() + b"body", "sha1")
    assert signature("k", fields, b"body") == base64.b64encode(wanted).decode()


def test_old_clients_add_a_field_after_they_have_signed() -> None:
    fields = {"a": "1", "_UNIQUE_KEY_QUERY": "true"}
    assert signature("k", fields, b"", version=399) == signature("k", {"a": "1"}, b"")
    assert signature("k", fields, b"", version=400) != signature("k", {"a": "1"}, b"")


def test_nothing_shows_a_key() -> None:
    account = Credentials("app", "secret-of-app", "token-of-app")
    assert "secret" not in repr(account) and "token" not in repr(account)
    assert account.signed({}, b"")["SecurityToken"] == "token-of-app"

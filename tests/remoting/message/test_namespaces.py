"""Names with namespaces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprocket.remoting.message.namespaces import (
    MAX_CHARS,
    namespace_of,
    namespace_problem,
    with_namespace,
    without_namespace,
)

LEGAL = st.from_regex(r"\A(?:[a-zA-Z0-9_-]{1,20}\|)?[a-zA-Z0-9_-]{1,20}\Z")
NAMES = st.from_regex(r"\A(?:%RETRY%|%DLQ%|%LMQ%|%LMQ%\$)?[a-zA-Z0-9_|-][%|a-zA-Z0-9_-]{0,30}\Z")


@pytest.mark.parametrize(
    ("name", "namespace", "whole"),
    [
        ("Paid", "orders", "orders%Paid"),
        ("Paid", "shop|orders", "shop|orders%Paid"),
        ("%RETRY%Billing", "shop|orders", "%RETRY%shop|orders%Billing"),
        ("%DLQ%Billing", "orders", "%DLQ%orders%Billing"),
        ("%LMQ%$Chats$one", "orders", "%LMQ%$orders%Chats$one"),
        ("%LMQ%light", "orders", "%LMQ%orders%light"),
        ("billing%Paid", "orders", "orders%billing%Paid"),
    ],
)
def test_a_name_gets_its_namespace_after_reserved_prefixes(name: str, namespace: str, whole: str) -> None:
    assert with_namespace(namespace, name) == whole
    assert with_namespace(namespace, whole) == whole
    assert namespace_of(whole) == namespace
    assert without_namespace(namespace, whole) == name


@pytest.mark.parametrize("name", ["", "TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "CID_RMQ_SYS_TRANS"])
def test_names_of_the_system_have_no_namespace(name: str) -> None:
    assert with_namespace("orders", name) == name


@pytest.mark.parametrize("name", ["Paid", "%RETRY%Billing", "%DLQ%Billing", "%Paid", "orders|Paid", ""])
def test_a_name_without_a_namespace(name: str) -> None:
    assert namespace_of(name) == ""
    assert with_namespace("", name) == name
    assert without_namespace("", name) == name


@given(LEGAL, NAMES)
def test_a_name_leads_back_to_itself_and_never_out_of_its_namespace(namespace: str, name: str) -> None:
    whole = with_namespace(namespace, name)
    if whole != name:
        assert namespace_of(whole) == namespace
        assert without_namespace(namespace, whole) == name


@pytest.mark.parametrize("namespace", ["orders", "shop|orders", "a-b_C|9", "n" * MAX_CHARS])
def test_legal_namespaces(namespace: str) -> None:
    assert namespace_problem(namespace) is None


@pytest.mark.parametrize("namespace", ["", "|orders", "shop|", "a|b|c", "shop%orders", "a b", "ü", "n" * 65, "a\n"])
def test_illegal_namespaces_are_told_what_to_write(namespace: str) -> None:
    assert namespace_problem(namespace) is not None

"""What a declaration refuses: each mistake has an error that says what to write instead."""

from typing import Any

import pytest

from sprocket.client.errors import IllegalArgument
from sprocket.functions import Retries, function


async def _handler(value: int, ctx: object) -> None: ...


async def _three(value: int, ctx: object, more: object) -> None: ...


async def _defaults(value: int, ctx: object, more: object = None, *, last: int = 0) -> None: ...


def _plain(value: int, ctx: object) -> None: ...


@pytest.mark.parametrize(
    ("given", "handler", "message"),
    [
        ({"input": 5}, _handler, "pass the name of a topic, or a map of topics to types"),
        ({"input": {}}, _handler, "_handler has no input: name a topic"),
        ({"input": "no topic"}, _handler, "no topic"),
        ({"output": 5}, _handler, "topic"),
        ({"window": 60_000, "state": int}, _handler, "window is .*; pass a Tumbling"),
        ({"retries": 3}, _handler, "retries is .*; pass a Retries"),
        ({"consume_from": "FIRST"}, _handler, r"pass ConsumeFrom\.FIRST"),
        ({"input": {"In": complex}}, _handler, "the type of In is .*complex.*; pass bytes, a dataclass"),
        ({"state": open}, _handler, "state is .*; pass bytes"),
        ({"time": 5}, _handler, "pass a function that returns the event time"),
        ({}, _plain, "write `async def`"),
        ({}, _three, r"_three has 3 parameters; write \(value, ctx\)"),
    ],
)
def test_a_wrong_declaration_says_what_to_write(given: dict[str, Any], handler: Any, message: str) -> None:
    with pytest.raises(IllegalArgument, match=message):
        function(**({"input": "In", "group": "g"} | given))(handler)


def test_a_handler_may_have_more_parameters_with_defaults() -> None:
    declared = function(input="In", group="g", state=int)(_defaults)
    assert declared.on_expiry(_defaults) is _defaults


@pytest.mark.parametrize("given", [{"times": -1}, {"pause_s": -1}, {"timeout_s": 0}, {"times": 1.5}])
def test_retries_have_no_negative_numbers_and_no_limit_of_nothing(given: dict[str, Any]) -> None:
    with pytest.raises(IllegalArgument, match=next(iter(given))):
        Retries(**given)


def test_what_expires_is_state_and_its_handler_takes_key_value_and_context() -> None:
    with pytest.raises(IllegalArgument, match=r"_handler has no state that could expire"):
        function(input="In", group="g")(_handler).on_expiry(_three)
    declared = function(input="In", group="g", state=int)(_handler)
    with pytest.raises(IllegalArgument, match=r"write \(key, value, ctx\)"):
        declared.on_expiry(_handler)
    assert declared.on_expiry(_three) is declared.expiry

"""What connections may make the proxy hold: each of them, and all together."""

import pytest

from proxy.server.byte_budget import ByteBudget
from proxy.status import Refusal
from sprocket.grpc_wire import messaging_pb2 as wire


def _is_taken(budget: ByteBudget, connection: str, size: int) -> bool:
    try:
        budget.take(connection, size)
    except Refusal as refused:
        assert refused.code == wire.TOO_MANY_REQUESTS and "grpcMaxInFlightSize" in refused.message
        return False
    return True


@pytest.mark.parametrize(("size", "is_taken"), [(0, True), (10, True), (11, False)])
def test_connection_has_a_quarter(size: int, is_taken: bool) -> None:
    budget = ByteBudget(100)
    budget.take("one", 15)
    assert _is_taken(budget, "one", size) == is_taken
    assert budget.taken_bytes == 15 + size * is_taken
    assert _is_taken(budget, "other", 25)


def test_message_that_is_larger_than_everything_is_taken_alone() -> None:
    budget = ByteBudget(100)
    assert _is_taken(budget, "one", 300) and _is_taken(budget, "one", 0)
    assert not _is_taken(budget, "one", 1) and not _is_taken(budget, "other", 1)
    budget.give_back("one", 300)
    assert _is_taken(budget, "other", 25)


def test_connections_that_took_everything_leave_others_their_share() -> None:
    budget = ByteBudget(100)
    assert all(_is_taken(budget, name, 25) for name in "abcd")
    assert _is_taken(budget, "e", 1) and not _is_taken(budget, "e", 20) and _is_taken(budget, "e", 19)
    assert not _is_taken(budget, "a", 1)
    # One message of any size if it has nothing.
    assert _is_taken(budget, "f", 40) and budget.taken_bytes == 160


def test_connection_among_many_has_a_sixteenth() -> None:
    budget = ByteBudget(100)
    assert all(_is_taken(budget, name, 25) for name in "abcd")
    assert all(_is_taken(budget, str(number), 1) for number in range(50))
    assert _is_taken(budget, "7", 5) and not _is_taken(budget, "7", 1)


def _has_room(budget: ByteBudget, connection: str) -> bool:
    try:
        budget.check_room(connection)
    except Refusal as refused:
        assert refused.code == wire.TOO_MANY_REQUESTS and "grpcMaxInFlightSize" in refused.message
        return False
    return True


def test_connection_that_was_refused_has_no_room_until_it_gives_something_back() -> None:
    budget = ByteBudget(100)
    assert _is_taken(budget, "one", 12) and _is_taken(budget, "one", 12) and _has_room(budget, "one")
    assert not _is_taken(budget, "one", 2) and not _has_room(budget, "one") and _has_room(budget, "other")
    budget.give_back("one", 12)
    assert _has_room(budget, "one") and _is_taken(budget, "one", 13) and not _has_room(budget, "one")


def test_nobody_has_room_when_all_have_twice_the_limit() -> None:
    budget = ByteBudget(100)
    assert _is_taken(budget, "one", 99) and _is_taken(budget, "two", 101)
    assert not _has_room(budget, "other") and not _is_taken(budget, "other", 1)
    budget.give_back("two", 101)
    assert _has_room(budget, "other")


def test_all_have_at_most_twice_the_limit() -> None:
    budget = ByteBudget(100)
    taken = sum(_is_taken(budget, str(number), 1) for number in range(1000))
    assert taken == budget.taken_bytes and 100 <= taken <= 200
    for number in range(taken):
        budget.give_back(str(number), 1)
    assert not budget.taken_bytes and not len(budget)

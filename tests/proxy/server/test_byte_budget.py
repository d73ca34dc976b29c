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
    assert not _is_taken(budget, "e", 21) and _is_taken(budget, "e", 20)
    assert not _is_taken(budget, "a", 1)
    assert _is_taken(budget, "f", 10) and budget.taken_bytes == 130


def test_all_have_at_most_twice_the_limit() -> None:
    budget = ByteBudget(100)
    taken = sum(_is_taken(budget, str(number), 1) for number in range(1000))
    assert taken == budget.taken_bytes and 100 <= taken <= 200
    for number in range(taken):
        budget.give_back(str(number), 1)
    assert not budget.taken_bytes and not len(budget)

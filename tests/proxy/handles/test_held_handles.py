"""The table of held handles, in the test's own time."""

from proxy.brokers.receipts import parse_receipt
from proxy.handles.held_handles import RENEWALS_MS, Held, HeldHandles

_GIVEN = "0 1000 60000 1 0 broker 2 0 77"


def _held(client_id: str = "c", message_id: str = "m", given: str = _GIVEN) -> Held:
    receipt = parse_receipt(given)
    return Held(client_id, "g", "t", message_id, given, receipt, received_ms=1000, reconsume_times=0)


def test_handle_is_found_by_what_the_client_has() -> None:
    table, held = HeldHandles(), _held()
    table.add(held)
    held.renewed(held.receipt.renewed(50_000, 180_000, 3))
    assert table.take("c", "g", "m", "other") is None
    assert table.take("other", "g", "m", _GIVEN) is None
    taken = table.take("c", "g", "m", _GIVEN)
    assert taken is held and taken.receipt.encode() == "0 50000 180000 3 0 broker 2 0 77"
    assert table.take("c", "g", "m", _GIVEN) is None and len(table) == 0


def test_due_are_those_that_become_visible_soon() -> None:
    held = _held()
    assert not held.is_due(50_000, 10_000)
    assert held.is_due(51_000, 10_000)
    held.renewed(held.receipt.renewed(51_000, held.next_invisible_ms, 3))
    assert not held.is_due(51_000, 10_000)


def test_each_renewal_is_longer() -> None:
    held = _held()
    times = []
    for _ in range(8):
        times.append(held.next_invisible_ms)
        held.renewed(held.receipt)
    assert times == [*RENEWALS_MS, RENEWALS_MS[-1], RENEWALS_MS[-1]]


def test_client_that_dies_holds_nothing() -> None:
    table = HeldHandles()
    for number in range(3):
        table.add(_held(message_id=str(number)))
    table.add(_held("other"))
    assert len(table.take_client("c")) == 3 and len(table) == 1
    assert table.take_client("c") == []

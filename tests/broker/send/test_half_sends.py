"""The quick way of a half message makes the message that the long way makes, or leaves it to that."""

from pathlib import Path

import pytest

from broker.send.send_kinds import SendKind, kind_of
from tests.broker.send.test_timed_sends import HOST, KEY, PLAN, SUFFIX, Intake

HALF = "TRAN_MSG\x01true\x02PGROUP\x01bench\x02"


@pytest.mark.parametrize(
    "properties",
    [
        KEY + HALF,
        KEY + HALF[:-1],
        HALF + "TAGS\x01grün\x02k\x01v\x02" + KEY,
        HALF + "WAIT\x01true\x02" + KEY,
        KEY + "note\x01DELAY, POP_CK and INNER_NUM; CLUSTER TRAN_MSG\x02" + HALF,
    ],
)
@pytest.mark.parametrize("sys_flag", [0, 4, 8 | 1])
def test_a_common_form_is_made_quickly_and_is_the_same(tmp_path: Path, properties: str, sys_flag: int) -> None:
    intake = Intake(tmp_path)
    request = intake.request(properties)
    request.header.sys_flag = sys_flag
    assert kind_of(properties) is SendKind.HALF
    quick = intake.whole.halves.message(request, PLAN, HOST, SUFFIX)
    assert quick is not None
    assert quick == intake.whole.message(request, PLAN, HOST)


@pytest.mark.parametrize(
    ("properties", "body"),
    [
        (HALF, b"body"),
        (KEY + "TRAN_MSG\x01TRUE\x02PGROUP\x01bench\x02", b"body"),
        (KEY + "TRAN_MSG\x01false\x02PGROUP\x01bench\x02", b"body"),
        (KEY + "xTRAN_MSG\x01true\x02PGROUP\x01bench\x02", b"body"),
        (KEY + "TRAN_MSG\x01true\x02", b"body"),
        (KEY + "TRAN_MSG\x01true\x02PGROUP\x01\x02", b"body"),
        (KEY + KEY + HALF, b"body"),
        (KEY + HALF + HALF, b"body"),
        (KEY + HALF + "TIMER_DELAY_MS\x015\x02", b"body"),
        (KEY + HALF + "DELAY\x013\x02", b"body"),
        (KEY + HALF + "TRAN_PREPARED_QUEUE_OFFSET\x011\x02", b"body"),
        (KEY + HALF + "TRANSACTION_CHECK_TIMES\x011\x02", b"body"),
        (KEY + HALF + "__transactionId__\x01t\x02", b"body"),
        (KEY + HALF + "REAL_TOPIC\x01Other\x02", b"body"),
        (KEY + HALF + "INNER_NUM\x013\x02", b"body"),
        (KEY + HALF + "CLUSTER\x01c\x02", b"body"),
        (KEY + HALF + "POP_CK\x01c\x02", b"body"),
        (KEY + HALF, b""),
        (KEY + HALF, bytes((4 << 20) + 1)),
        (KEY + HALF + "k\x01" + "v" * 32_700 + "\x02", b"body"),
    ],
)
def test_other_forms_are_left_to_the_long_way(tmp_path: Path, properties: str, body: bytes) -> None:
    intake = Intake(tmp_path)
    is_half = kind_of(properties) is SendKind.HALF
    assert not is_half or intake.whole.halves.message(intake.request(properties, body), PLAN, HOST, SUFFIX) is None


def test_none_is_made_where_half_messages_are_rejected(tmp_path: Path) -> None:
    intake = Intake(tmp_path)
    intake.config.update(b"rejectTransactionMessage=true")
    assert intake.whole.halves.message(intake.request(KEY + HALF), PLAN, HOST, SUFFIX) is None

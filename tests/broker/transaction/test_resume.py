"""RESUME_CHECK_HALF_MESSAGE: what was given up is asked about again, and ends once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.message_id import offset_message_id
from sprocket.common.errors import RequestError
from sprocket.remoting.codes import RequestCode, ResponseCode
from sprocket.remoting.command import Request
from sprocket.remoting.headers.admin import ResumeCheckHalfMessageRequestHeader
from sprocket.remoting.message.topic_names import TRANS_CHECK_MAX_TIME_TOPIC
from tests.broker.transaction.rig import COMMIT, ROLLBACK, Rig
from tests.store.rig import HOST


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, transaction_check_max=1)
    yield rig
    rig.close()


def resume(rig: Rig, physical_offset: int) -> int:
    """The code of the answer."""
    header = ResumeCheckHalfMessageRequestHeader(
        topic=TRANS_CHECK_MAX_TIME_TOPIC, msg_id=offset_message_id(HOST, physical_offset)
    )
    request: Request[ResumeCheckHalfMessageRequestHeader] = Request(
        code=RequestCode.RESUME_CHECK_HALF_MESSAGE, header=header
    )
    request.channel = rig.channel
    rig.channel.answers.clear()
    try:
        rig.processor.resume(request)
    except RequestError as error:
        return error.code
    return rig.channel.answers[0].code


def give_up(rig: Rig, **properties: str) -> int:
    """Where the given-up message lies in the log."""
    rig.prepare("K", b"", 0, **properties)
    while not rig.given_up():
        rig.turn()
    return rig.records(TRANS_CHECK_MAX_TIME_TOPIC)[0].physical_offset


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.code(RequestCode.RESUME_CHECK_HALF_MESSAGE)
def test_it_is_asked_about_and_ends(rig: Rig, outcome: int, crash: bool) -> None:
    place = give_up(rig)
    assert resume(rig, place) == ResponseCode.SUCCESS
    if crash:
        rig.flush()
        rig.crash()
    assert rig.turn() == ["K"]
    rig.answer({"K": outcome})
    assert rig.delivered() == (["K"] if outcome == COMMIT else [])
    assert (rig.turn(), rig.open_count()) == ([], 0)


def test_nobody_who_answers_means_given_up_again(rig: Rig) -> None:
    assert resume(rig, give_up(rig)) == ResponseCode.SUCCESS
    assert [rig.turn(), rig.turn()] == [["K"], []]
    assert rig.given_up() == ["K", "K"]


def test_one_that_was_immune_forgets_its_first_place(rig: Rig) -> None:
    place = give_up(rig, CHECK_IMMUNITY_TIME_IN_SECONDS="40")
    assert resume(rig, place) == ResponseCode.SUCCESS
    assert b"TRAN_PREPARED_QUEUE_OFFSET" not in bytes(rig.halves()[-1].properties)
    rig.flush()
    rig.crash()
    assert rig.open_count() == 1


def test_what_is_not_resumed(rig: Rig) -> None:
    place = give_up(rig)
    half = rig.prepare("L")
    assert resume(rig, half[1]) == ResponseCode.SYSTEM_ERROR, "a half message that is open anyway"
    assert resume(rig, 1 << 40) == ResponseCode.SYSTEM_ERROR
    assert resume(rig, place) == ResponseCode.SUCCESS
    before = len(rig.halves())
    assert resume(rig, place) == ResponseCode.SYSTEM_ERROR, "it is being checked already"
    assert len(rig.halves()) == before

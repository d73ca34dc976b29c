"""The type of a message that a client sends over remoting, from its properties."""

import pytest

from proxy.remoting.message_routes import type_of_encoded


def encoded(*properties: tuple[str, str]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties).encode()


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (encoded(), "NORMAL"),
        (encoded(("KEYS", "k")), "NORMAL"),
        (encoded(("TRAN_MSG", "true"), ("DELAY", "3")), "TRANSACTION"),
        (encoded(("TRAN_MSG", "false")), "NORMAL"),
        (encoded(("DELAY", "3"), ("__SHARDINGKEY", "s")), "DELAY"),
        (encoded(("TIMER_DELIVER_MS", "1")), "DELAY"),
        (encoded(("TIMER_DELAY_SEC", "1")), "DELAY"),
        (encoded(("TIMER_DELAY_MS", "1"))[:-1], "DELAY"),
        (encoded(("__SHARDINGKEY", "é")), "FIFO"),
        (encoded(("_SYS_MSG_PRIORITY_", "0")), "PRIORITY"),
        (encoded(("_SYS_MSG_PRIORITY_", "3"), ("__SHARDINGKEY", "s")), "FIFO"),
        (encoded(("_SYS_MSG_PRIORITY_", "3"), ("DELAY", "1")), "DELAY"),
        # The end of another name, and a value that looks like a name.
        (encoded(("NO_DELAY", "3"), ("KEYS", "DELAY")), "NORMAL"),
        # The last value counts, and an empty one does not.
        (encoded(("TRAN_MSG", "false"), ("TRAN_MSG", "true")), "TRANSACTION"),
        (encoded(("TRAN_MSG", "true"), ("TRAN_MSG", "false")), "NORMAL"),
        (encoded(("DELAY", ""), ("__SHARDINGKEY", "s")), "FIFO"),
    ],
)
def test_type_of_a_message(properties: bytes, expected: str) -> None:
    assert type_of_encoded(properties) == expected

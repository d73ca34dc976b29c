"""Pauses between attempts."""

from sprocket.client.connection.backoff import Backoff


async def test_each_pause_is_twice_as_long_up_to_the_longest() -> None:
    backoff, lengths = Backoff(0.001, 0.005), []
    for _ in range(5):
        lengths.append(backoff.next_s)
        await backoff.pause(0.0)
    assert lengths == [0.001, 0.002, 0.004, 0.005, 0.005]
    backoff.reset()
    assert backoff.next_s == 0.001

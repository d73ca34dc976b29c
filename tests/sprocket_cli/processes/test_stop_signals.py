"""A signal ends a wait, whenever it comes."""

import os
import signal
import threading

from sprocket_cli.processes.stop_signals import StopSignals

NUMBER = signal.SIGUSR1


def send() -> None:
    os.kill(os.getpid(), NUMBER)


def test_a_signal_ends_a_wait_and_those_that_follow() -> None:
    before = signal.getsignal(NUMBER)
    with StopSignals([NUMBER]) as stopping:
        assert not stopping.wait(0) and not stopping.is_set()
        thread = threading.Thread(target=send)
        thread.start()
        assert stopping.wait(60) and stopping.is_set()
        thread.join()
        send()
        assert stopping.wait(60)
    assert signal.getsignal(NUMBER) == before


def test_signals_in_the_midst_of_waits() -> None:
    """A handler that takes a lock of the wait that it comes in waits for itself."""
    going_on = True

    def send_again_and_again() -> None:
        while going_on:
            send()

    with StopSignals([NUMBER]) as stopping:
        thread = threading.Thread(target=send_again_and_again)
        thread.start()
        for _ in range(20_000):
            stopping.wait(0)
        going_on = False
        thread.join()
        assert stopping.is_set()

"""An actor of Dramatiq for the tests: a worker runs it in processes of its own."""

import os
import time
from pathlib import Path

import dramatiq

from sprocket.client.pop.pop_settings import PopSettings
from sprocket.contrib.dramatiq import SprocketBroker

broker = SprocketBroker(os.environ["SPROCKET_TEST_BROKER"], settings=PopSettings(pop_invisible_time_s=3))
_NOTES = Path(os.environ["SPROCKET_TEST_NOTES"])


@dramatiq.actor(broker=broker, queue_name="killed")
def note(number: int) -> None:
    """Write a line at the beginning and one at the end."""
    for word in ("begin", "end"):
        with _NOTES.open("a") as notes:
            notes.write(f"{word} {number}\n")
        if word == "begin":
            time.sleep(0.2)

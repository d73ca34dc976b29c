"""Settings that the parts of the demo share."""

from typing import Final

# How often clients ask for routes (pollNameServerInterval): 30 s by default, too long for a demo of recovery.
POLL_NAME_SERVER_S: Final = 1.0
GROUP: Final = "flight-readers"
TOPIC: Final = "Flights"

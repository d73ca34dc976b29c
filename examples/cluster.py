"""The name server of the examples: from the command line, or of a broker that runs until the example ends."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sprocket.testing import Broker


@contextmanager
def name_server(**properties: str) -> Iterator[str]:
    """Yield an address for `namesrv`.  Without one on the command line, start a broker with `properties`."""
    if len(sys.argv) > 1:
        yield sys.argv[1]
    else:
        with Broker(properties=properties) as broker:
            yield broker.namesrv

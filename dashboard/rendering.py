"""Templates: every value is escaped."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dashboard.page import Page
from dashboard.sampling.chart import short
from dashboard.views import words

_FOLDER: Final = Path(__file__).parent
STATIC: Final = _FOLDER / "static"


class Templates:
    """The templates of the dashboard, loaded once."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(
            moment=words.moment,
            moment_ms=words.moment_ms,
            duration=words.duration,
            size=words.size,
            number=words.number,
            percent=words.percent,
            short=short,
        )
        self._environment.globals.update(link=link)

    def html(self, page: Page, common: Mapping[str, object]) -> str:
        """Return the text of a page; `common` are the values that all pages have."""
        return self._environment.get_template(page.template).render({**common, **page.values})


def link(path: str, **fields: object) -> str:
    """Return an address of the dashboard with these fields; those that are None or empty are left out."""
    given = {name: value for name, value in fields.items() if value is not None and value != ""}
    return f"{path}?{urlencode(given)}" if given else path

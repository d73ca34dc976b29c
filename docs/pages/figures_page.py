"""Writes docs/figures.md: the figures that the parts of a broker declare, and the reasons of refusals.

Run as ``python -m docs.pages.figures_page <file>`` (`make docs`); a test compares the file with it.
"""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.server import Broker
from docs.pages.command import write
from sprocket.common.refusal_reasons import Reason
from store.config.store_config import StoreConfig

_HEAD: Final = """\
# Figures

Written by `make docs` from the declarations in the code; do not edit.

`mqadmin brokerStatus -b <broker>` shows these figures of a running broker; `-n <name server> -c <cluster>` shows them
for each broker of a cluster. Programs get them with GET_BROKER_RUNTIME_INFO. RocketMQ's figures have RocketMQ's names.
A name with `<...>` stands for one figure for each item.

| Figure | Meaning |
|---|---|
"""
_REASONS: Final = """
## Reasons of refusals

A broker counts each refused request once, under one of these reasons (`requestsRefused_<reason>`). A name server
counts under the same reasons, and logs the counts that grew (`event=requests_refused`) at most once a minute.

| Reason | Refused because |
|---|---|
"""


def page() -> str:
    """Return the text of docs/figures.md."""
    with tempfile.TemporaryDirectory() as folder:
        config = BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1", listen_port=0, namesrv_addr="")
        store = StoreConfig(store_path_root_dir=Path(folder) / "store")
        # Under controllers a broker has figures that others do not have.
        brokers = [Broker(one, store) for one in (config, replace(config, enable_controller_mode=True))]
        figures = {figure.name: figure.says for broker in brokers for figure in broker.figures.declared}
    lines = [f"| `{name}` | {says} |\n" for name, says in sorted(figures.items())]
    reasons = [f"| `{reason.name.lower()}` | {reason.value} |\n" for reason in Reason]
    return "".join([_HEAD, *lines, _REASONS, *reasons])


if __name__ == "__main__":
    write(page())

"""Commands of RocketMQ's mqadmin that Sprocket's does not have, each with its reason.

`mqadmin` and docs/mqadmin.md show the reasons.  Tests compare the table with our commands and with those of RocketMQ's
own mqadmin.  Remove a command from this table when it is declared in `sprocket_cli.mqadmin`.

Source of the names: RocketMQ 5.3.3 and 5.5.0, `MQAdminStartup.initCommand`.
"""

from typing import Final

_BY_REASON: Final[dict[str, tuple[str, ...]]] = {
    "No broker container: one broker per process.": ("addBroker", "removeBroker"),
    "Sprocket does not use RocksDB.": (
        "exportMetadataInRocksDB", "exportPopRecord", "rocksDBConfigToJson", "checkRocksdbCqWriteProgress",
        "switchTimerEngine",
    ),
}  # fmt: skip
# Name -> reason.
ABSENT: Final = {name: reason for reason, names in _BY_REASON.items() for name in names}

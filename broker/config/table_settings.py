"""What a broker can be told about topics that are kept as tables.  An addition: RocketMQ has nothing of the kind."""

from dataclasses import dataclass

from sprocket.common.setting_fields import text_setting


@dataclass(frozen=True)
class TableSettings:
    """The part of `BrokerConfig` that names those topics."""

    table_topics_config_path: str = text_setting(
        "tableTopicsConfigPath",
        "",
        "YAML file of topics that a process beside the broker keeps as Parquet, Delta or Iceberg tables "
        "([spark.md](spark.md#tables)); an addition of Sprocket. Empty: none.",
    )

    @property
    def keeps_tables(self) -> bool:
        """Whether some topics are kept as tables."""
        return bool(self.table_topics_config_path)

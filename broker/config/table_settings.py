"""Settings of topics that are kept as tables.  Not in RocketMQ."""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import text_setting


@dataclass(frozen=True)
class TableSettings:
    """Setting in `BrokerConfig` that names these topics."""

    table_topics_config_path: str = text_setting(
        "tableTopicsConfigPath",
        "",
        "YAML file of topics that a second process keeps as Parquet, Delta or Iceberg tables "
        "([spark.md](spark.md#tables)); not in RocketMQ; empty for none.",
    )

    @property
    def keeps_tables(self) -> bool:
        """Whether some topics are kept as tables."""
        return bool(self.table_topics_config_path)

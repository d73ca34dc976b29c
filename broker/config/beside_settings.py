"""Settings of processes that run beside a broker, and end with it.  Not in RocketMQ."""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import text_setting


@dataclass(frozen=True)
class BesideSettings:
    """Settings in `BrokerConfig` that name the files of these processes."""

    table_topics_config_path: str = text_setting(
        "",
        "YAML file of topics that a second process keeps as Parquet, Delta or Iceberg tables "
        "([spark.md](spark.md#tables)); not in RocketMQ; empty for none.",
    )
    replication_config_path: str = text_setting(
        "",
        "TOML file of a replicator that runs as a second process "
        "([geo-replication.md](geo-replication.md#beside-a-broker)); not in RocketMQ; empty for none.",
    )

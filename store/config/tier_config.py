"""Settings of tiered storage: where the archive is, what goes there, and how long it stays.

`store.config.store_config.StoreConfig` inherits them, as in RocketMQ, whose plug-in reads the broker's file as well.
Source of names and defaults: RocketMQ 5.3.3 and 5.5.1, `org.apache.rocketmq.tieredstore.MessageStoreConfig`.
"""

from dataclasses import dataclass

from sprocket.common.config.setting_fields import bool_setting, int_setting, setting, text_setting

_MAX_HOURS = 24 * 365 * 100


@dataclass(frozen=True, kw_only=True)
class TierConfig:
    """Settings of a store for its archive."""

    object_store_bucket: str = text_setting(
        "",
        "Tiered storage is on if this names a bucket of S3, or is a URL: s3://bucket/folder, gs://bucket/folder, "
        "az://account/container/folder, file:///folder. Closed parts of the CommitLog go there.",
    )
    object_store_endpoint: str = text_setting(
        "",
        "Address of a store that speaks S3, such as https://minio.example:9000; if empty, AWS or what the "
        "environment says.",
    )
    object_store_access_key: str = text_setting(
        "", "Access key for S3; if empty, credentials come from the environment, as the vendors' own tools read them."
    )
    object_store_secret_key: str = setting("", "The secret of objectStoreAccessKey.", secret=True)
    tiered_store_file_path: str = text_setting(
        "", "Directory for the archive, in place of objectStoreBucket: a mount that survives this machine."
    )
    read_only_from: str = text_setting(
        "",
        "Folder of a broker group's archive, perhaps of another cluster: s3://bucket/folder/cluster/broker. This "
        "broker serves its messages, takes no sends, and writes nothing there.",
    )
    tiered_store_file_reserved_time: int = int_setting(
        72,
        "How long messages stay in the archive; the attribute reserve.time of a topic goes before it. Files on the "
        "local disk have fileReservedTime.",
        0,
        "hours",
        _MAX_HOURS,
        mutable=True,
    )
    tiered_store_delete_file_enable: bool = bool_setting(
        True, "Delete from the archive what has expired.", mutable=True
    )
    tiered_store_delete_file_interval: int = int_setting(
        3_600_000, "Interval between checks whether anything in the archive has expired.", 1_000, "ms", mutable=True
    )
    commit_log_rolling_interval: int = int_setting(
        24,
        "A part of the CommitLog file that is written now is uploaded if its first message is older; 0: only whole "
        "files are uploaded.",
        0,
        "hours",
        _MAX_HOURS,
        mutable=True,
    )
    commit_log_rolling_minimum_size: int = int_setting(
        16 * 1024 * 1024, "With commitLogRollingInterval: but not less than this.", 1, "bytes", mutable=True
    )
    tiered_store_all_topics: bool = bool_setting(
        True,
        "Archive all topics; if false, only those with the attribute reserve.time, and of all others nothing "
        "leaves this machine.",
        mutable=True,
    )

    @property
    def archive_url(self) -> str:
        """Where the archive is; empty without tiered storage."""
        bucket = self.object_store_bucket
        if bucket:
            return bucket if "://" in bucket else f"s3://{bucket}"
        return f"file://{self.tiered_store_file_path}" if self.tiered_store_file_path else ""

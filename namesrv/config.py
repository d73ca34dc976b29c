"""Configuration of a name server.

Source of names and defaults: RocketMQ 5.3.3, `NamesrvConfig`, `NettyServerConfig`, `NamesrvStartup`, `AuthConfig`.
"""

from dataclasses import dataclass
from pathlib import Path

from acl.auth.settings import AuthSettings
from acl.gate_settings import GateSettings
from sprocket.common.config.setting_fields import bool_setting, int_setting, made_setting, text_setting
from sprocket.common.logs.settings import LogSettings
from sprocket.metrics.health import HealthSettings
from sprocket.remoting.serving.listener_settings import ListenerSettings


@dataclass(frozen=True)
class NamesrvConfig(ListenerSettings, AuthSettings, GateSettings, HealthSettings, LogSettings):
    """Configuration of a name server."""

    listen_port: int = int_setting(9876, "Port for brokers and clients; 0 means a free port.", 0, maximum=65535)
    kv_config_path: Path = made_setting(
        lambda: Path.home() / "namesrv" / "kvConfig.json", "File of the KV configuration."
    )
    auth_config_path: str = text_setting(
        "", "Folder of auth.json, the users and policies; the folder of kvConfigPath if empty."
    )
    enable_controller_in_namesrv: bool = bool_setting(
        False, "Run a controller in the same process; its keys are in the same file."
    )
    scan_not_active_broker_interval: int = int_setting(
        5_000, "Interval of the scan for silent brokers.", 1, "ms", mutable=True
    )
    order_message_enable: bool = bool_setting(False, "Add a topic's order configuration to its routes.", mutable=True)
    return_order_topic_config_to_broker: bool = bool_setting(
        True, "Add the order configuration to the response to a registration.", mutable=True
    )
    delete_topic_with_broker_registration: bool = bool_setting(
        False, "Remove a topic from a broker's routes when its registrations no longer name it.", mutable=True
    )
    support_acting_master: bool = bool_setting(
        False, "Show a slave as master in routes if the master is lost.", mutable=True
    )
    enable_all_topic_list: bool = bool_setting(True, "Answer requests for all topics.", mutable=True)
    enable_topic_list: bool = bool_setting(
        True, "Answer requests for the topics of a cluster, of the system or of units.", mutable=True
    )
    notify_min_broker_id_changed: bool = bool_setting(
        False, "Notify the brokers of a group when the smallest broker id of the group changes.", mutable=True
    )
    need_wait_for_service: bool = bool_setting(
        False, "Refuse routes for a time after the start, until brokers have registered.", mutable=True
    )
    wait_seconds_for_service: int = int_setting(
        45, "Time for which needWaitForService refuses routes.", 0, "s", mutable=True
    )

    def check(self) -> None:
        """Raise ConfigError if the configuration is invalid."""
        self.check_auth()
        self.check_log()

"""Settings of access control.

Source of names and defaults: RocketMQ 5.3.2, `BrokerConfig`.
"""

import os
from dataclasses import dataclass

from acl.auth.settings import AuthSettings
from acl.gate_settings import GateSettings
from sprocket.common.config.setting_fields import bool_setting, made_setting


@dataclass(frozen=True)
class SecuritySettings(AuthSettings, GateSettings):
    """Settings in `BrokerConfig` of access control at the broker's port."""

    acl_enable: bool = bool_setting(
        False, "Require every request to be signed by an account; the accounts are under rocketmqHome."
    )
    rocketmq_home: str = made_setting(
        lambda: os.environ.get("ROCKETMQ_HOME", ""),
        "Folder with the accounts of aclEnable: conf/plain_acl.yml and conf/acl/*.yml.",
        default_text="$ROCKETMQ_HOME",
    )

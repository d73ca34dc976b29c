"""What a broker can be told about who may do what.

Source of names and defaults: RocketMQ 5.3.2, `BrokerConfig`.
"""

import os
from dataclasses import dataclass, field

from acl.auth.settings import AuthSettings
from acl.gate_settings import GateSettings
from sprocket.common.setting_fields import bool_setting


@dataclass(frozen=True)
class SecuritySettings(AuthSettings, GateSettings):
    """The part of a broker's configuration that guards its port."""

    acl_enable: bool = bool_setting(
        "aclEnable", False, "Ask every request for an account and its signature, by the accounts below rocketmqHome."
    )
    rocketmq_home: str = field(
        default_factory=lambda: os.environ.get("ROCKETMQ_HOME", ""),
        metadata={
            "key": "rocketmqHome",
            "doc": "Folder whose conf/plain_acl.yml and conf/acl/*.yml have the accounts of aclEnable.",
            "default_text": "$ROCKETMQ_HOME",
        },
    )

"""Options of ``df.write.format("rocketmq")``, named after RocketMQ's producer."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from spark.options.option_values import CONNECTION_OPTIONS, by_known_names, credentials, name_servers, tls, whole_number
from sprocket.client.arguments import check_group, check_topic
from sprocket.client.connection.client_instance import ClientSettings
from sprocket.client.errors import ClientError
from sprocket.client.send.send_request import SendSettings
from sprocket.common import limits
from sprocket.common.errors import ConfigError
from sprocket.remoting.credentials import Credentials
from sprocket.remoting.tls.settings import TlsSettings

KNOWN: Final = (
    "topic",  # for rows without a column topic
    "producerGroup",
    "sendMsgTimeout",  # ms; time limit of one attempt
    "retryTimesWhenSendFailed",  # attempts after the first one
    "maxMessageSize",  # bytes of a body
    "batchMaxBytes",  # bytes of bodies in one request; 0: one message per request
    "maxOutstanding",  # requests of one task that wait for a response
    *CONNECTION_OPTIONS,
    "delayTimeLevel",  # of rows without a column of that name
    "flag",
)
_SET_BY_SPARK: Final = ("path", "checkpointLocation")
_DEFAULT_BATCH_BYTES: Final = 128 * 1024
_DEFAULT_OUTSTANDING: Final = 64
_DEFAULT_RETRIES: Final = 5


@dataclass(frozen=True)
class SinkOptions:
    """Checked options."""

    namesrv_addr: str
    topic: str | None = None
    group: str = "sprocket-spark"
    send_msg_timeout_s: float = 3.0
    retries: int = _DEFAULT_RETRIES
    max_message_size: int = limits.MAX_MESSAGE_BYTES
    batch_max_bytes: int = _DEFAULT_BATCH_BYTES
    max_outstanding: int = _DEFAULT_OUTSTANDING
    delay_level: int = 0
    flag: int = 0
    credentials: Credentials | None = None
    tls: TlsSettings | None = None

    def client(self) -> ClientSettings:
        """Return the settings for connections of a task."""
        return ClientSettings(namesrv=self.namesrv_addr, credentials=self.credentials, tls=self.tls)

    def sending(self) -> SendSettings:
        """Return the settings for sends, without retries: the task itself retries and counts."""
        return SendSettings(
            send_msg_timeout_s=self.send_msg_timeout_s,
            retry_times_when_send_failed=0,
            max_message_size=self.max_message_size,
        )

    def checking(self) -> SendSettings:
        """Return the settings for checks of messages before a send: the limits of `sending`, no compression."""
        return replace(self.sending(), compress_msg_body_over_howmuch=self.max_message_size + 1)


def read_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check `options` (names in any case).  Raises ConfigError that names the option and what is allowed."""
    given = by_known_names(options, KNOWN, _SET_BY_SPARK)
    servers = name_servers(given)
    if given.get("path"):
        raise ConfigError("option 'path': rows are sent to brokers; call save() without a path")
    topic = given.get("topic")
    group = given.get("producerGroup", SinkOptions.group)
    try:
        check_group(group)
        if topic is not None:
            check_topic(topic)
    except ClientError as error:
        raise ConfigError(str(error)) from error
    return SinkOptions(
        namesrv_addr=";".join(servers),
        topic=topic,
        group=group,
        send_msg_timeout_s=whole_number(given, "sendMsgTimeout", 3000, 1) / 1000,
        retries=whole_number(given, "retryTimesWhenSendFailed", _DEFAULT_RETRIES, 0),
        max_message_size=whole_number(given, "maxMessageSize", limits.MAX_MESSAGE_BYTES, 1),
        batch_max_bytes=whole_number(given, "batchMaxBytes", _DEFAULT_BATCH_BYTES, 0),
        max_outstanding=whole_number(given, "maxOutstanding", _DEFAULT_OUTSTANDING, 1),
        delay_level=whole_number(given, "delayTimeLevel", 0, 0),
        flag=whole_number(given, "flag", 0, 0),
        credentials=credentials(given),
        tls=tls(given),
    )

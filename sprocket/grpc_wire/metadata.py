"""Metadata of a call: who calls, and with which signature.  Source: RocketMQ 5.3.3, `GrpcConstants`."""

from typing import Final

CLIENT_ID: Final = "x-mq-client-id"
LANGUAGE: Final = "x-mq-language"
CLIENT_VERSION: Final = "x-mq-client-version"
PROTOCOL: Final = "x-mq-protocol"
DATE_TIME: Final = "x-mq-date-time"
SESSION_TOKEN: Final = "x-mq-session-token"
AUTHORIZATION: Final = "authorization"

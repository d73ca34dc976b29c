"""Settings of a server about users and policies.

Source of names and defaults: RocketMQ 5.3.3, `AuthConfig`.  Java classes cannot be loaded here.  Keys that name a class
accept RocketMQ's own classes, by full name or last part, with their meaning.
"""

from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from acl.auth.model import User, UserType
from acl.tokens.settings import TokenSettings
from sprocket.common.config.configuration import settings_of
from sprocket.common.config.setting_fields import bool_setting, setting, text_setting
from sprocket.common.errors import ConfigError
from sprocket.remoting.credentials import Credentials

_AUTHENTICATION: Final = "org.apache.rocketmq.auth.authentication."
T = TypeVar("T", bound=msgspec.Struct)
_AUTHORIZATION: Final = "org.apache.rocketmq.auth.authorization."


def _class_setting(doc: str, package: str, *names: str) -> str:
    return setting("", doc, classes=(*names, *(package + name for name in names)))


@dataclass(frozen=True)
class AuthSettings(TokenSettings):
    """Part of a server's configuration that is about ACL 2.0."""

    authentication_enabled: bool = bool_setting(False, "Require a user and its signature for every request (ACL 2.0).")
    authentication_provider: str = _class_setting(
        "How a user proves itself: only the reference's own way.",
        _AUTHENTICATION + "provider.",
        "DefaultAuthenticationProvider",
    )
    authentication_metadata_provider: str = _class_setting(
        "Where users are: only in this server's own file.",
        _AUTHENTICATION + "provider.",
        "LocalAuthenticationMetadataProvider",
    )
    authentication_strategy: str = _class_setting(
        "Both are accepted; every signature is checked with either.",
        _AUTHENTICATION + "strategy.",
        "StatelessAuthenticationStrategy",
        "StatefulAuthenticationStrategy",
    )
    authentication_whitelist: str = text_setting("", "Request codes, with commas, that need no signature.")
    init_authentication_user: str = setting(
        "",
        'A super user to create at the start if that name does not exist: {"username":"..","password":".."}.',
        secret=True,
    )
    inner_client_authentication_credentials: str = setting(
        "",
        "Credentials with which servers sign requests to others.  A super user of that name is created at the "
        'start if it does not exist: {"accessKey":"..","secretKey":".."}.',
        secret=True,
    )
    authorization_enabled: bool = bool_setting(
        False, "Check policies for what a user asks for; implies authenticationEnabled."
    )
    authorization_provider: str = _class_setting(
        "How it is decided: only the reference's own way.", _AUTHORIZATION + "provider.", "DefaultAuthorizationProvider"
    )
    authorization_metadata_provider: str = _class_setting(
        "Where policies are: only in this server's own file.",
        _AUTHORIZATION + "provider.",
        "LocalAuthorizationMetadataProvider",
    )
    authorization_strategy: str = _class_setting(
        "Both are accepted, and mean the same: the present policies decide.",
        _AUTHORIZATION + "strategy.",
        "StatelessAuthorizationStrategy",
        "StatefulAuthorizationStrategy",
    )
    authorization_whitelist: str = text_setting("", "Request codes, with commas, that need no permission.")
    migrate_auth_from_v1_enabled: bool = bool_setting(
        False,
        "At the start create users and policies from the accounts of ACL 1.0 (below rocketmqHome) that are not users.",
    )
    certificate_as_user: bool = bool_setting(
        False,
        "A request that is not signed comes from the user whose name the client's certificate has, if TLS checked it.",
        key="tls.server.certificate.as.user",
    )
    auth_secret_key_file: str = text_setting(
        "", "The key that seals passwords in auth.json; auth.key beside it if empty."
    )
    auth_secrets_in_clear: bool = bool_setting(
        False, "Write passwords into auth.json in clear, for programs that must read them there."
    )

    @property
    def asks_for_users(self) -> bool:
        """Whether requests need a user."""
        return self.authentication_enabled or self.authorization_enabled

    def first_users(self) -> list[User]:
        """Return the users to create at the start if they do not exist.  Raises ConfigError."""
        users = []
        if self.init_authentication_user.strip():
            decoded = _decoded(
                "initAuthenticationUser", self.init_authentication_user, _InitUser, "username and password"
            )
            users.append(User(decoded.username, decoded.password, UserType.SUPER))
        inner = self.inner_credentials()
        if inner is not None:
            users.append(User(inner.access_key, inner.secret_key, UserType.SUPER))
        return users

    def inner_credentials(self) -> Credentials | None:
        """Return the credentials with which servers sign requests to others; None if not set.  Raises ConfigError."""
        key, text = "innerClientAuthenticationCredentials", self.inner_client_authentication_credentials
        if not text.strip():
            return None
        decoded = _decoded(key, text, _InnerCredentials, "accessKey and secretKey")
        return Credentials(decoded.access_key, decoded.secret_key, decoded.security_token)

    def codes_without_signature(self) -> frozenset[int]:
        """Return the codes of authenticationWhitelist.  Raises ConfigError."""
        return _codes("authenticationWhitelist", self.authentication_whitelist)

    def codes_without_permission(self) -> frozenset[int]:
        """Return the codes of authorizationWhitelist.  Raises ConfigError."""
        return _codes("authorizationWhitelist", self.authorization_whitelist)

    def check_auth(self) -> None:
        """Raise ConfigError for invalid settings."""
        names = (
            self.authentication_provider, self.authentication_metadata_provider, self.authentication_strategy,
            self.authorization_provider, self.authorization_metadata_provider, self.authorization_strategy,
        )  # fmt: skip
        declared = [each for each in settings_of(AuthSettings) if "classes" in each.metadata]
        for each, name in zip(declared, names, strict=True):
            classes = each.metadata["classes"]
            if name and name not in classes:
                raise ConfigError(f"{each.key}: {name!r} cannot be loaded; allowed are {', '.join(classes)}")
        self.check_tokens()
        self.first_users()
        self.codes_without_signature()
        self.codes_without_permission()


class _InitUser(msgspec.Struct, rename="camel"):
    username: str
    password: str
    user_type: object = None
    user_status: object = None


class _InnerCredentials(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str
    security_token: str = ""


def _decoded(key: str, text: str, kind: type[T], names: str) -> T:
    """Decode a JSON object.  Raises ConfigError, which does not quote the text: it holds a secret."""
    try:
        said = msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError:
        raise ConfigError(f"{key}: write a JSON object with {names}, both texts") from None
    if not all(getattr(said, name).strip() for name in kind.__struct_fields__[:2]):
        raise ConfigError(f"{key}: neither of {names} may be blank")
    return said


def _codes(key: str, text: str) -> frozenset[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    wrong = [part for part in parts if not (part.isascii() and part.isdigit())]
    if wrong:
        raise ConfigError(f"{key}: {wrong[0]!r} is no request code; write numbers with commas, as in 10,310")
    return frozenset(int(part) for part in parts)

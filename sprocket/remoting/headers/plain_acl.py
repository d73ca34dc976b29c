"""Headers of ACL 1.0's administration.  Source: RocketMQ 5.3.2, package `remoting.protocol.header`."""

from sprocket.remoting.headers.base import Header


class CreateAccessConfigRequestHeader(Header, kw_only=True):
    """UPDATE_AND_CREATE_ACL_CONFIG; permissions with commas between them, as in ``topicA=DENY,topicB=SUB``."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAccessConfigRequestHeader(Header, kw_only=True):
    """DELETE_ACL_CONFIG."""

    access_key: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(Header, kw_only=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG; addresses with commas between them, of ``plain_acl.yml`` or the file named."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


class GetBrokerAclConfigResponseHeader(Header, kw_only=True):
    """The answer to GET_BROKER_CLUSTER_ACL_INFO: a DataVersion as JSON, and one for each file by its path."""

    version: str
    all_acl_file_version: str
    broker_name: str
    broker_addr: str
    cluster_name: str

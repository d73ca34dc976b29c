"""Access control says no: what applications see of it."""

import pytest

from remoting.codes import ResponseCode
from sprocket import BrokerRefused, PermissionDenied
from sprocket.client.errors import refusal


@pytest.mark.parametrize(
    ("code", "remark", "is_denied"),
    [
        (ResponseCode.NO_PERMISSION, "User:alice has no permission to access Topic:T from 10.0.0.1, no policies", True),
        (ResponseCode.NO_PERMISSION, "username cannot be null.", True),
        (ResponseCode.NO_PERMISSION, "the topic[T] sending message is forbidden", False),
        (ResponseCode.NO_PERMISSION, "subscription group no permission, g", False),
        (ResponseCode.SYSTEM_ERROR, "org.apache.rocketmq.acl.common.AclException: No permission for T", True),
        (ResponseCode.SYSTEM_ERROR, "disk full", False),
        (ResponseCode.SYSTEM_ERROR, None, False),
    ],
)
def test_what_access_control_refused_is_told_from_other_refusals(
    code: int, remark: str | None, is_denied: bool
) -> None:
    error = refusal(code, remark, "127.0.0.1:10911")
    assert isinstance(error, BrokerRefused)
    assert isinstance(error, PermissionDenied) is is_denied
    assert (error.code, error.remark, error.address) == (code, remark, "127.0.0.1:10911")
    assert ("credentials" in str(error)) is is_denied

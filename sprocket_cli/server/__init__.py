"""Commands that run servers."""

from sprocket.common.own_packages import SERVER_PACKAGES, check_own_packages

check_own_packages(*SERVER_PACKAGES)

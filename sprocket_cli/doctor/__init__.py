"""`sprocket doctor`: what may go wrong with a machine, a configuration and a cluster, and what to do about it."""

from sprocket.common.own_packages import check_own_packages

check_own_packages("broker", "store")

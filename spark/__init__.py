"""Spark data source over segment files, in the layouts of `store.layout`; it starts no server."""

from sprocket.common.own_packages import check_own_packages

# Spark's workers import this package first, each with a `sys.path` of its own.
check_own_packages("store", warns=False)

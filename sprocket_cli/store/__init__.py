"""`sprocket store`: look into a store directory, check it, repair it, export and import."""

from sprocket.common.own_packages import check_own_packages

check_own_packages("store")

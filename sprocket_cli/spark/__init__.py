"""`sprocket spark`: queries, reports and tables over store directories."""

from sprocket.common.own_packages import check_own_packages

check_own_packages("spark", "store")

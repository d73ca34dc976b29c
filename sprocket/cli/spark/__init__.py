"""`sprocket spark`: queries, reports and tables over store directories."""

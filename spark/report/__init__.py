"""A report over store directories: queries, findings, charts, one HTML page."""

"""Dashboard: pages in a browser about a cluster, for its operators.

`server.Dashboard` listens, and `application` alone knows the web library.  `pages` answer, `asking` talks to servers,
`views` are pure functions from answers to what a page shows, `security` decides who may ask, `sampling` keeps the hour.
"""

"""Transactional outbox: messages that an application writes in its own database transaction, and a relay sends.

A message is written with one of::

    sprocket.outbox.sqlalchemy.add(session, message, key="order-17")
    await sprocket.outbox.sqlalchemy.add_async(session, message, key="order-17")
    await sprocket.outbox.asyncpg.add(connection, message, key="order-17")
    sprocket.outbox.sqlite.add(connection, message, key="order-17")
    sprocket.contrib.django.outbox.add(message, key="order-17")

All share one table.  `sprocket outbox run` sends what was committed: each message once, those of one topic and key in
the order of their commits.  docs/outbox.md says how.
"""

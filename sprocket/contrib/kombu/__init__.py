"""Transport of Kombu, and so broker of Celery, over a Sprocket or RocketMQ 5 cluster::

    import sprocket.contrib.kombu
    from celery import Celery

    app = Celery("shop", broker="sprocket://127.0.0.1:9876", backend="rpc://")

The import makes the scheme ``sprocket://`` known.  A worker acknowledges a task as Celery says (`task_acks_late`);
those of a worker that dies are delivered to another after `visibility_timeout`, which the worker renews as long as it
lives.  `eta` and `countdown` are kept by the broker.  docs/celery.md has what differs from RabbitMQ.
"""

from sprocket.common.extras import missing_package

try:
    from kombu.transport import TRANSPORT_ALIASES
except ModuleNotFoundError as error:
    raise ImportError(missing_package(error, "sprocket.contrib.kombu") or str(error), name=error.name) from error

from sprocket.contrib.kombu.transport import Transport

__all__ = ["Transport"]

TRANSPORT_ALIASES["sprocket"] = "sprocket.contrib.kombu.transport:Transport"

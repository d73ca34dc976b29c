"""Tasks of Celery through Sprocket, RabbitMQ and Redis, one after the other in one run."""

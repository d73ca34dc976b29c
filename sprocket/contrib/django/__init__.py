"""Django: a backend for its tasks with a worker, and the outbox as a model::

    INSTALLED_APPS = [..., "sprocket.contrib.django"]
    TASKS = {
        "default": {
            "BACKEND": "sprocket.contrib.django.backend.SprocketBackend",
            "OPTIONS": {"namesrv": "127.0.0.1:9876"},
        }
    }

`manage.py sprocket_worker` runs tasks, `manage.py sprocket_outbox` relays the outbox.  docs/django.md has the rest.
"""

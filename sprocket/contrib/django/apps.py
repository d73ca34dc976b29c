"""The application `sprocket` of a Django project."""

from django.apps import AppConfig


class SprocketConfig(AppConfig):
    """Tasks and the outbox."""

    name = "sprocket.contrib.django"
    label = "sprocket"
    verbose_name = "Sprocket"
    default_auto_field = "django.db.models.BigAutoField"

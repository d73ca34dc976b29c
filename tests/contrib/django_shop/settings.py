"""Settings; the place of the database and of the cluster are in the environment."""

import os

import django

FRAMEWORK = "django.tasks" if django.VERSION >= (6,) else "django_tasks"
SECRET_KEY = "of tests"
USE_TZ = True
ALLOWED_HOSTS = ["testserver"]
ROOT_URLCONF = "tests.contrib.django_shop.urls"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "sprocket.contrib.django",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", ":memory:"),
        "OPTIONS": {"timeout": 30, "transaction_mode": "IMMEDIATE"},
    }
}
TASKS = {
    "default": {
        "BACKEND": "sprocket.contrib.django.backend.SprocketBackend",
        "QUEUES": ["default", "E-Mail"],
        "OPTIONS": {"namesrv": os.environ.get("SHOP_NAMESRV", "127.0.0.1:1"), "visibility_timeout": 5},
    },
    "down": {
        "BACKEND": "sprocket.contrib.django.backend.SprocketBackend",
        "OPTIONS": {"namesrv": "127.0.0.1:1"},
    },
    "dummy": {"BACKEND": f"{FRAMEWORK}.backends.dummy.DummyBackend"},
}

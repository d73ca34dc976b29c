"""Run Django's own tests of task backends, or those of django-tasks, against the backend of Sprocket.

``python -m tests.contrib.django_suite FOLDER``, with FOLDER ``tests/tasks`` of Django's sources, or ``tests`` of those
of django-tasks.  Their tests of the immediate backend run with tasks that go through a broker and are executed at
once; those of the dummy backend with tasks that nobody executes.  docs/django.md lists what does not apply.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from sprocket.testing import Broker

_SETTINGS = """
SECRET_KEY = "of tests"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "sprocket.contrib.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "TEST": {"NAME": "tasks.db"}}}
"""


def _adapted(text: str) -> str:
    for old, new in (("immediate.ImmediateBackend", "Executed"), ("dummy.DummyBackend", "Kept")):
        for framework in ("django.tasks", "django_tasks"):
            module, _, name = old.partition(".")
            text = text.replace(f"{framework}.backends.{old}", f"tests.contrib.django_suite.backends.{new}")
            text = text.replace(
                f"from {framework}.backends.{module} import {name}",
                f"from tests.contrib.django_suite.backends import {new} as {name}",
            )
    # The results are rows of the database.
    return text.replace("SimpleTestCase", "TransactionTestCase").replace("available_apps = []", "")


def main(folder: Path) -> int:
    """Run the tests; return how many failed."""
    with tempfile.TemporaryDirectory() as name, Broker() as broker:
        target = Path(name)
        shutil.copytree(folder, target / "suite")
        for path in (target / "suite").rglob("*.py"):
            path.write_text(_adapted(path.read_text().replace("from tests ", "from suite ")))
        (target / "suite_settings.py").write_text(_SETTINGS)
        sys.path.insert(0, name)
        os.environ |= {"DJANGO_SETTINGS_MODULE": "suite_settings", "NAMESRV_ADDR": broker.namesrv}
        os.chdir(name)
        import django
        from django.conf import settings
        from django.test.utils import get_runner

        django.setup()
        failed: int = get_runner(settings)(verbosity=2).run_tests(["suite"])
        return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) > 0)

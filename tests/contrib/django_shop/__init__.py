"""A Django project of the tests: `python -m django --settings tests.contrib.django_shop.settings`."""

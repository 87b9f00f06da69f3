"""Migrations for `manage.py migrate`, one for each of Onefold's own."""

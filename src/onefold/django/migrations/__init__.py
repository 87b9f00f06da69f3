"""Migrations for `manage.py migrate`: one for each SQL migration of Onefold, with the same name."""

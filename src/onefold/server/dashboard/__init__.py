"""The dashboard: pages for people, as functions from a request to a response.

`dashboard.py` has the one function that all frameworks call. `asgi.py` serves it at `/` of the
server, `django.py` in a Django project. Each module of `pages/` has the pages of one noun.
"""

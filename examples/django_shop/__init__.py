"""The small shop again, as a project of Django's: four ways in, and one effect.

| surface | where | what comes twice |
|---|---|---|
| public API | `POST /api/orders` (api.py) | a client's retry after a timeout |
| form | `POST /orders` (pages.py) | a double click |
| webhook | `POST /hooks/payments` (hooks.py) | a delivery whose answer was lost |
| job | `django_shop.mail` (jobs.py) | a worker that died after the work |

What settings.py has for it: an app, a middleware, and `ONEFOLD`.
"""

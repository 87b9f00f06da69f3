"""The same small shop as a Django project: an API, a form, a webhook and a job.

| | where | what is repeated |
|---|---|---|
| public API | `POST /api/orders` (api.py) | a client's retry after a timeout |
| form | `POST /orders` (pages.py) | a double click |
| webhook | `POST /hooks/payments` (hooks.py) | a delivery whose response was lost |
| job | `django_shop.mail` (jobs.py) | a job whose worker died after the work |

settings.py has an app, a middleware and `ONEFOLD` for it.
"""

"""A Django project with the dashboard at /tools/onefold/, as a process of its own.

Its users are `boss` (a superuser), `staff` and `customer`; their password is PASSWORD. Prints its
URL when it listens.
"""

import socket
import sys
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.urls import include, path

PASSWORD = "a password of the tests"
LOGIN = "<form method=post>{% csrf_token %}{{ form }}<button>Log in</button></form>"


def configure(folder: str, url: str) -> None:
    """The settings of the project."""
    settings.configure(
        SECRET_KEY="a secret that is long enough for the tests",
        ALLOWED_HOSTS=["127.0.0.1"],
        ROOT_URLCONF=__name__,
        LOGIN_URL="login",
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": f"{folder}/django.sqlite3",
                "ATOMIC_REQUESTS": True,
            }
        },
        ONEFOLD={"DATABASE": url},
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "onefold.django",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.middleware.common.CommonMiddleware",
            "onefold.django.IdempotencyMiddleware",
            "django.middleware.csrf.CsrfViewMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "OPTIONS": {
                    "loaders": [
                        (
                            "django.template.loaders.locmem.Loader",
                            {"registration/login.html": LOGIN},
                        )
                    ]
                },
            }
        ],
        USE_TZ=True,
    )
    django.setup()


def urls() -> list[Any]:
    """The URLs of the project."""
    from django.contrib.auth.views import LoginView

    dashboard = include("onefold.server.dashboard.django")
    login = LoginView.as_view()
    return [path("login/", login, name="login"), path("tools/onefold/", dashboard)]


def main(mode: str, folder: str, url: str) -> None:
    """Serve until killed: `wsgi` or `asgi`."""
    configure(folder, url)
    call_command("migrate", "--run-syncdb", verbosity=0)
    from django.contrib.auth.models import User

    User.objects.create_superuser("boss", password=PASSWORD)
    User.objects.create_user("staff", password=PASSWORD, is_staff=True)
    User.objects.create_user("customer", password=PASSWORD)
    globals()["urlpatterns"] = urls()
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)  # noqa: T201 - for the test
    if mode == "wsgi":
        import waitress
        from django.core.wsgi import get_wsgi_application

        waitress.serve(get_wsgi_application(), sockets=[listener])
    else:
        import uvicorn
        from django.core.asgi import get_asgi_application

        config = uvicorn.Config(get_asgi_application(), lifespan="off", log_level="warning")
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    # Django imports the URLs by name: it must find this module, not another copy of it.
    sys.modules["tests.dashboard.django_project"] = sys.modules["__main__"]
    __name__ = "tests.dashboard.django_project"
    main(*sys.argv[1:])

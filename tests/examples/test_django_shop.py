"""The shop of Django."""

from examples.django_shop import settings
from tests.examples.shopping import Shopping


class TestDjangoShop(Shopping):
    module = "examples.django_shop"
    webhook_secret = settings.WEBHOOK_SECRET

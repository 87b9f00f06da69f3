"""The shop of Django."""

import pytest

from examples.django_shop import settings
from tests.examples.shopping import Shopping


@pytest.mark.prove
class TestDjangoShop(Shopping):
    module = "examples.django_shop"
    webhook_secret = settings.WEBHOOK_SECRET

"""The shop of FastAPI."""

from examples.shop.settings import Settings
from tests.examples.shopping import Shopping


class TestShop(Shopping):
    module = "examples.shop"
    webhook_secret = Settings.webhook_secret

"""Orders and mails."""

import uuid
from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Makes the two tables."""

    initial = True
    dependencies: ClassVar = []
    operations: ClassVar = [
        migrations.CreateModel(
            name="Order",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("customer", models.CharField(max_length=200)),
                ("product", models.CharField(max_length=200)),
                ("quantity", models.PositiveIntegerField()),
                ("state", models.CharField(default="placed", max_length=20)),
            ],
        ),
        migrations.CreateModel(
            name="Mail",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("subject", models.CharField(max_length=200)),
                (
                    "order",
                    models.ForeignKey(
                        on_delete=models.CASCADE, related_name="mails", to="django_shop.order"
                    ),
                ),
            ],
        ),
    ]

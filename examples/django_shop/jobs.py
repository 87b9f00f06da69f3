"""The job: sends a mail. Onefold's app imports this module when Django starts."""

from __future__ import annotations

from django.db import connection

from examples.django_shop.models import Mail
from onefold import Run  # noqa: TC001 - a declared job reads its annotations
from onefold.django import get_onefold


@get_onefold().job(kind="django_shop.mail")
def mail(run: Run, order_id: str, subject: str) -> None:
    """Store the mail and complete the job in one commit."""
    with run.transaction(connection):
        Mail.objects.create(order_id=order_id, subject=subject)

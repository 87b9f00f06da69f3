"""The settings of the shop. The secrets are for this machine only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """The database and the secrets."""

    database: str = "sqlite:///shop.db"
    form_secret: str = "a secret of this example, and of nothing else"  # noqa: S105
    webhook_secret: str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105

    @property
    def sqlalchemy_url(self) -> str:
        """The URL of the same database for SQLAlchemy."""
        if self.database.startswith("sqlite:"):
            return self.database.replace("sqlite:", "sqlite+aiosqlite:", 1)
        return self.database.replace("postgresql:", "postgresql+psycopg:", 1)

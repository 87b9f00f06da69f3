"""A Django project in a folder, which `manage.py` is run in."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SETTINGS = """
import json
from pathlib import Path

locals().update(json.loads((Path(__file__).parent / "settings.json").read_text()))
"""

MANAGE = """
import os
import sys

from django.core.management import execute_from_command_line

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
execute_from_command_line(sys.argv)
"""


class Project:
    """What `django-admin startproject` makes, and less of it."""

    def __init__(self, folder: Path, database: Mapping[str, Any], **settings: Any) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.write("manage.py", MANAGE)
        self.write("settings.py", SETTINGS)
        self.settings: dict[str, Any] = {
            "SECRET_KEY": "of the tests",
            "USE_TZ": True,
            "INSTALLED_APPS": ["onefold.django"],
            "DATABASES": {"default": dict(database)},
            **settings,
        }
        self.configure()

    def configure(self, **settings: Any) -> None:
        self.settings |= settings
        self.write("settings.json", json.dumps(self.settings))

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            cwd=self.folder,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def manage(self, *arguments: str) -> str:
        """Run a command that must succeed; what it prints."""
        done = self.start(*arguments)
        out, err = done.communicate()
        assert done.returncode == 0, err
        return out + err

    def refused(self, *arguments: str) -> str:
        """Run a command that must fail; the last line of what it says."""
        done = self.start(*arguments)
        _, err = done.communicate()
        assert done.returncode != 0
        return err.strip().splitlines()[-1]

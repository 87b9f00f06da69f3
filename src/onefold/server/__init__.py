"""The server: publish, push, dead letters, claims and keys over HTTP.

`onefold serve` runs it by itself; `create_app` makes it for an ASGI server of your choice, or to be
mounted in your application.
"""

from onefold.push.push_worker import PushSettings, PushWorker
from onefold.server.app import ServerApp, ServerSettings, create_app

__all__ = ["PushSettings", "PushWorker", "ServerApp", "ServerSettings", "create_app"]

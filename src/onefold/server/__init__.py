"""The server: publish, push, dead letters, claims and keys over HTTP.

`onefold serve` runs it; `create_app` makes an ASGI application for another server, or to mount in
your application.
"""

from onefold.push.push_worker import PushSettings, PushWorker
from onefold.server.app import ServerApp, ServerSettings, create_app

__all__ = ["PushSettings", "PushWorker", "ServerApp", "ServerSettings", "create_app"]

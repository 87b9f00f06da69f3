"""Onefold over HTTP: `Client` and `AsyncClient` for a server, `Receiver` for the jobs it pushes."""

from onefold.client.client import AsyncClient, Client
from onefold.client.connection import ClientOptions
from onefold.client.events import AsyncRemoteEvents, RemoteEvent, RemoteEvents
from onefold.client.lock import RemoteLock
from onefold.client.problems import (
    NotAuthorized,
    RateLimited,
    ServerError,
    Unreachable,
)
from onefold.client.push_request import PushedJob
from onefold.client.receiver import Receiver
from onefold.client.steps import AsyncRemoteSteps, RemoteSteps

__all__ = [
    "AsyncClient",
    "AsyncRemoteEvents",
    "AsyncRemoteSteps",
    "Client",
    "ClientOptions",
    "NotAuthorized",
    "PushedJob",
    "RateLimited",
    "Receiver",
    "RemoteEvent",
    "RemoteEvents",
    "RemoteLock",
    "RemoteSteps",
    "ServerError",
    "Unreachable",
]

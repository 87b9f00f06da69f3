"""Onefold over HTTP: `Client` and `AsyncClient` for what a server has, by the in-process names."""

from onefold.client.client import AsyncClient, Client
from onefold.client.connection import ClientOptions
from onefold.client.errors import (
    NotAuthorized,
    QueueNotFound,
    RateLimited,
    ServerError,
    Unreachable,
)
from onefold.client.jobs import RemoteDelivery, RemoteJob, RemotePage

__all__ = [
    "AsyncClient",
    "Client",
    "ClientOptions",
    "NotAuthorized",
    "QueueNotFound",
    "RateLimited",
    "RemoteDelivery",
    "RemoteJob",
    "RemotePage",
    "ServerError",
    "Unreachable",
]

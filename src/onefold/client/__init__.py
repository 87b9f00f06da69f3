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
from onefold.client.lock import AsyncRemoteLock, RemoteLock
from onefold.client.once import AsyncRemoteOnce, RemoteOnce
from onefold.client.pushed import PushedJob
from onefold.client.queue import QueueOptions, RemoteCounts, RemoteQueue, RemoteQueues
from onefold.client.receiver import Receiver
from onefold.client.steps import AsyncRemoteSteps, RemoteSteps

__all__ = [
    "AsyncClient",
    "AsyncRemoteLock",
    "AsyncRemoteOnce",
    "AsyncRemoteSteps",
    "Client",
    "ClientOptions",
    "NotAuthorized",
    "PushedJob",
    "QueueNotFound",
    "QueueOptions",
    "RateLimited",
    "Receiver",
    "RemoteCounts",
    "RemoteDelivery",
    "RemoteJob",
    "RemoteLock",
    "RemoteOnce",
    "RemotePage",
    "RemoteQueue",
    "RemoteQueues",
    "RemoteSteps",
    "ServerError",
    "Unreachable",
]

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
from onefold.client.event import RemoteEvent
from onefold.client.events import AsyncRemoteEvents, RemoteEvents
from onefold.client.jobs import RemoteDelivery, RemoteJob, RemotePage
from onefold.client.lock import AsyncRemoteLock, RemoteLock
from onefold.client.once import AsyncRemoteOnce, RemoteOnce
from onefold.client.pushed import PushedJob
from onefold.client.queue import QueueOptions, RemoteCounts, RemoteQueue, RemoteQueues
from onefold.client.receiver import Receiver
from onefold.client.schedule import RemoteSchedule, RemoteScheduleOptions
from onefold.client.steps import AsyncRemoteSteps, RemoteSteps

__all__ = [
    "AsyncClient",
    "AsyncRemoteEvents",
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
    "RemoteEvent",
    "RemoteEvents",
    "RemoteJob",
    "RemoteLock",
    "RemoteOnce",
    "RemotePage",
    "RemoteQueue",
    "RemoteQueues",
    "RemoteSchedule",
    "RemoteScheduleOptions",
    "RemoteSteps",
    "ServerError",
    "Unreachable",
]

"""`Client` and `AsyncClient`: Onefold on a server, under the names that it has in-process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onefold.client.claim_calls import AsyncClaimCalls, ClaimCalls
from onefold.client.connection import Connection, connection
from onefold.client.event_calls import AsyncEventCalls, EventCalls
from onefold.client.job_calls import AsyncJobCalls, JobCalls
from onefold.client.operator_calls import AsyncOperatorCalls, OperatorCalls
from onefold.client.schedule_calls import AsyncScheduleCalls, ScheduleCalls

if TYPE_CHECKING:
    import ssl
    from types import TracebackType
    from typing import Self, Unpack

    from onefold.client.async_driver import AsyncDriver
    from onefold.client.connection import ClientOptions
    from onefold.client.sync_driver import SyncDriver


class Client(JobCalls, ClaimCalls, ScheduleCalls, EventCalls, OperatorCalls):
    """A server's jobs, keys and queues, for plain code. Threads may share one.

        with Client("https://onefold.example.com", api_key="of_…") as client:
            client.enqueue("invoice.email", {"id": 7}, queue="email")

    Every call is carried out once, whatever the network does meanwhile: its key is made before the
    first try, and every try is the same request.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """`tls` is for a server whose certificate is signed by an authority of your own."""
        from onefold.client.sync_driver import SyncDriver

        self._connection: Connection = connection(url, api_key, options)
        self._driver: SyncDriver = SyncDriver(self._connection.url, self._connection.headers, tls)

    def __repr__(self) -> str:
        """Where to; the API key is nobody's business."""
        return f"Client({self._connection.url!r})"

    def close(self) -> None:
        """Close the connections that are kept."""
        self._driver.close()

    def __enter__(self) -> Self:
        """Close it when the block ends."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


class AsyncClient(
    AsyncJobCalls, AsyncClaimCalls, AsyncScheduleCalls, AsyncEventCalls, AsyncOperatorCalls
):
    """`Client`, awaited. It belongs to the event loop of its first request.

    async with AsyncClient("https://onefold.example.com", api_key="of_…") as client:
        await client.enqueue("invoice.email", {"id": 7}, queue="email")
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """`tls` is for a server whose certificate is signed by an authority of your own."""
        from onefold.client.async_driver import AsyncDriver

        self._connection: Connection = connection(url, api_key, options)
        self._driver: AsyncDriver = AsyncDriver(self._connection.url, self._connection.headers, tls)

    def __repr__(self) -> str:
        """Where to; the API key is nobody's business."""
        return f"AsyncClient({self._connection.url!r})"

    async def close(self) -> None:
        """Close the connections that are kept."""
        await self._driver.close()

    async def __aenter__(self) -> Self:
        """Close it when the block ends."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

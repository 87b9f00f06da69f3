"""A tenant with a key, and what it may have: jobs, queues, claims, locks, steps and schedules."""

import base64
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from onefold.model.checks import qualified
from onefold.model.ids import new_id
from tests.fixtures.colours import Store
from tests.fixtures.place import Place
from tests.fixtures.served import NOTHING, Api, Reply

MINUTE = timedelta(minutes=1)
OWNED = ("job", "claim", "schedule", "served_queue")
"""Tables whose rows say whose they are."""


class Things(NamedTuple):
    """What somebody has, by what it is called."""

    queue: str
    waiting: str
    running: str
    dead: str
    fence: int
    claim: str
    lock: str
    schedule: str
    key: str
    unique_key: str
    publish_key: str


class Neighbour:
    """One tenant, who asks with a key of its own."""

    def __init__(self, api: Api, tenant: str, bearer: str) -> None:
        self.api = api
        self.tenant = tenant
        self.bearer = bearer

    async def __call__(self, method: str, path: str, body: Any = NOTHING, **headers: str) -> Reply:
        """One request."""
        known: dict[str, Any] = {**headers, "authorization": f"Bearer {self.bearer}"}
        return await self.api(method, path, body, **known)

    async def does(self, method: str, path: str, body: Any = NOTHING, **headers: str) -> Any:
        """One request that is carried out; what was answered."""
        reply = await self(method, path, body, **headers)
        assert reply.status in {200, 201}, reply.body
        return reply.json

    async def furnish(self) -> Things:
        """Have one of everything, always under the same names."""
        await self.does("PUT", "/v1/queues/payments", {"maxAttempts": 3})
        running, dead = [await self.publish(number) for number in (1, 2)]
        taken = {job.id: job for job in await self.take(2)}
        fence = taken[running].fence
        step = f"/v1/jobs/{running}/steps/charge"
        begun = await self.does("PUT", step, {"action": "begin", "fence": fence})
        done = {"action": "finish", "fence": fence, "attempt": begun["attempt"]}
        await self.does("PUT", step, {**done, "result": self.secret})
        refusal = {"retryable": False, "reason": self.secret}
        await self.does("POST", f"/v1/jobs/{dead}/nack", refusal)
        claim = await self.does("POST", "/v1/claims", {"scope": "import", "key": "k-1"})
        lock = await self.does("POST", "/v1/locks", {"name": "ledger"})
        nightly = {"cron": "0 3 * * *", "queue": "payments", "payload": self.secret}
        await self.does("PUT", "/v1/schedules/nightly", nightly)
        await self.does("POST", "/v1/queues/payments/pause")
        return Things(
            queue="payments",
            waiting=await self.publish(3, idempotencyKey="order-1", uniqueKey="user-1"),
            running=running,
            dead=dead,
            fence=fence,
            claim=claim["id"],
            lock=lock["id"],
            schedule="nightly",
            key="k-1",
            unique_key="user-1",
            publish_key="order-1",
        )

    @property
    def secret(self) -> str:
        """What nobody else must ever be shown."""
        return f"only for {self.tenant}"

    async def publish(self, number: int, **options: Any) -> str:
        """A job, by its id."""
        body = {"payload": {"number": number, "secret": self.secret}, **options}
        job_id: str = (await self.does("POST", "/v1/queues/payments/jobs", body))["id"]
        return job_id

    async def take(self, limit: int = 1) -> list[Any]:
        """As a worker of this tenant's queue."""
        queue = qualified(self.tenant, "payments")
        engine = self.api.onefold.deliveries
        return await engine.atake([queue], limit=limit, worker="worker", lease=MINUTE)


class Neighbours:
    """Everybody who has a key."""

    def __init__(self, api: Api, store: Store) -> None:
        self.api = api
        self._store = store
        self._place = Place(store.url, store.schema)
        self._maker = store.open()

    def called(self, tenant: str, **options: Any) -> Neighbour:
        """A tenant with a new key."""
        options.setdefault("scopes", ["admin"])
        return Neighbour(self.api, tenant, self._maker.api_keys.create(tenant, **options).text)

    def belongings(self, tenant: str) -> dict[str, list[str]]:
        """Every row that is a tenant's, as it is stored."""
        with self._place.connection() as connection:
            rows = {
                table: connection.execute(
                    f"select * from {self._store.table(table)} where tenant = '{tenant}'"
                ).fetchall()
                for table in OWNED
            }
            named = f"select * from {self._store.table('queue')}"
            queues = connection.execute(named).fetchall()
        rows["queue"] = [row for row in queues if f"{{{tenant}}}" in repr(row)]
        return {table: sorted(map(repr, found)) for table, found in rows.items()}


def never(things: Things, *, same_names: bool = False) -> Things:
    """Things like these that nobody ever had: of the same length, and as well spelled.

    With `same_names`, only ids are others.
    """
    names = things._replace(
        queue="paymentz",
        schedule="nightlz",
        key="k-9",
        unique_key="user-9",
        publish_key="order-9",
    )
    return (things if same_names else names)._replace(
        waiting=new_id(),
        running=new_id(),
        dead=new_id(),
        claim=_never(things.claim, things.key if same_names else "k-9"),
        lock=_never(things.lock, "ledger" if same_names else "ledgez"),
    )


def _never(handle: str, key: str) -> str:
    told = base64.urlsafe_b64decode(handle + "==")
    surface, scope, _, _, fence = msgspec.msgpack.decode(told)
    told = msgspec.msgpack.encode([surface, scope, key, new_id(), fence])
    return base64.urlsafe_b64encode(told).rstrip(b"=").decode()

-- What the server needs: deliveries that wait for their ack, holds of queues, its queues, its API keys.

-- The fence of the delivery that was pushed and waits for its ack. It means something only while it is
-- the row's fence and the job is running, so that a take need not reset it.
alter table onefold_job add column awaiting integer;

-- Without an ack in time: bury it.
alter table onefold_job add column awaiting_dead integer not null default 0;

-- The last exchange with an endpoint, as JSON.
alter table onefold_job add column pushed text;

-- A queue with `held_until` gives nothing until then, and afterwards one job at a time, until it is
-- opened. It is `controlled` meanwhile, whatever limits it has.
alter table onefold_queue add column held_until integer;

-- backpressure, deferred, circuit
alter table onefold_queue add column held_why text;

-- Of its endpoint, in a row.
alter table onefold_queue add column failures integer not null default 0;

-- Queues as the server has them: where their jobs are pushed, and how. On the shard of the name that
-- the engine's queue has.
create table onefold_served_queue (
    shard integer not null,
    tenant text not null,
    name text not null,
    settings text not null,                     -- as JSON
    created_at integer not null,
    updated_at integer not null,
    primary key (shard, tenant, name)
);

create table onefold_api_key (
    shard integer not null,
    id text not null,
    tenant text not null,
    name text not null,
    scopes text not null,
    digest text not null,                       -- of the secret, which is nowhere
    rate_count integer,
    rate_period integer,
    full_at integer not null default 0,         -- when the bucket of the rate will be full again
    created_at integer not null,
    expires_at integer,
    revoked_at integer,
    primary key (shard, id)
);

-- What the server needs: deliveries that wait for their ack, holds of queues, its queues, its API keys.

alter table onefold.job
    -- The fence of the delivery that was pushed and waits for its ack. It means something only while
    -- it is the row's fence and the job is running, so that a take need not reset it.
    add column awaiting bigint,
    add column awaiting_dead boolean not null default false,    -- without an ack in time: bury it
    add column pushed text;                     -- the last exchange with an endpoint, as JSON

-- A queue with `held_until` gives nothing until then, and afterwards one job at a time, until it is
-- opened. It is `controlled` meanwhile, whatever limits it has.
alter table onefold.queue
    add column held_until bigint,
    add column held_why text,                   -- backpressure, deferred, circuit
    add column failures integer not null default 0;     -- of its endpoint, in a row

-- Queues as the server has them: where their jobs are pushed, and how. On the shard of the name that
-- the engine's queue has.
create table onefold.served_queue (
    shard smallint not null,
    tenant text collate "C" not null,
    name text collate "C" not null,
    settings text not null,                     -- as JSON
    created_at bigint not null,
    updated_at bigint not null,
    primary key (shard, tenant, name)
);

create table onefold.api_key (
    shard smallint not null,
    id text collate "C" not null,
    tenant text collate "C" not null,
    name text not null,
    scopes text not null,
    digest text not null,                       -- of the secret, which is nowhere
    rate_count integer,
    rate_period bigint,
    full_at bigint not null default 0,          -- when the bucket of the rate will be full again
    created_at bigint not null,
    expires_at bigint,
    revoked_at bigint,
    primary key (shard, id)
) with (fillfactor = 50);

-- Take a chore for :every microseconds, unless another worker has it. It is one statement, because idle
-- workers run it often.
insert into onefold.claim (
    shard, tenant, surface, scope, key, id, owner, state, takeover, fence, created_at, lease_until
)
select
    :shard::smallint, '', 'chore', '', :chore::text, :owner::uuid, :owner::uuid, 0, 0, clock.now,
    clock.now, clock.now + :every::bigint
from
    (select coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint))
        as clock (now)
on conflict (shard, tenant, surface, scope, key) do update
set
    owner = excluded.owner,
    fence = greatest(claim.fence + 1, excluded.fence),
    lease_until = excluded.lease_until
where claim.lease_until <= excluded.created_at
returning key

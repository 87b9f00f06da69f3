-- For an operator: mark a step that has not ended as done, or let it run again. The fence of its attempt
-- becomes invalid.
update onefold.claim as c
set
    owner = :owner::text::uuid,
    state = :state::smallint,
    settled_at = case when :state::smallint = 1 then clock.now end,
    result = :result::text
from
    coalesce(:now::bigint, (extract(epoch from statement_timestamp()) * 1000000)::bigint)
        as clock (now)
where
    c.shard = :shard::smallint
    and c.tenant = :tenant::text
    and c.surface = 'step'
    and c.scope = :job::text
    and c.key = :key::text
    and c.owner = :seen_owner::text::uuid
    and c.state <> 1
returning c.key

-- An operator's word about a step that is not over: it is done, or it may run again. Whoever is at it is
-- fenced off.
update onefold_claim
set
    owner = :owner,
    state = :state,
    settled_at = case when :state = 1 then :now end,
    result = :result
where
    shard = :shard
    and tenant = :tenant
    and surface = 'step'
    and scope = :job
    and key = :key
    and owner = :seen_owner
    and state <> 1
returning key

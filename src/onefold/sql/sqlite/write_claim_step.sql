-- Take a step over, or store how it ended, if it has not changed since it was read and the fence of its
-- claim is still valid.
update onefold_claim
set
    id = :step_owner,
    owner = :step_owner,
    state = :state,
    takeover = :takeover,
    fence = :fence,
    created_at = case when owner = :step_owner then created_at else :now end,
    settled_at = case when :state = 1 then :now end,
    fingerprint = :fingerprint,
    result = :result
where
    shard = :shard
    and tenant = (
        select p.tenant
        from onefold_claim as p
        where
            p.shard = :shard
            and p.tenant = :tenant
            and p.surface = :surface
            and p.scope = :scope
            and p.key = :key
            and p.state = 0
            and p.fence = :fence
            and p.owner = :owner
    )
    and surface = 'step'
    and scope = :steps
    and key = :step
    and owner = :seen_owner
    and state = :seen_state
returning key, owner, state, fence, fingerprint, takeover, created_at, settled_at, result

-- Take a step over, or store how it ended, if it has not changed since it was read and the fence of its
-- delivery is still valid.
update onefold_claim
set
    id = :owner,
    owner = :owner,
    state = :state,
    takeover = :takeover,
    fence = :fence,
    created_at = case when owner = :owner then created_at else :now end,
    lease_until = null,
    settled_at = case when :state = 1 then :now end,
    expires_at = null,
    fingerprint = :fingerprint,
    result = :result
where
    shard = :shard
    and tenant = (
        select j.tenant
        from onefold_job as j
        where
            j.shard = :shard and j.id = :job and j.fence = :fence
            and (j.state = 1 or not :running)
    )
    and surface = 'step'
    and scope = :job
    and key = :key
    and owner = :seen_owner
    and state = :seen_state
returning key, owner, state, fence, fingerprint, takeover, created_at, settled_at, result

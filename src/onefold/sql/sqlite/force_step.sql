-- For an operator: mark a step that has not ended as done, or let it run again. The fence of its attempt
-- becomes invalid.
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

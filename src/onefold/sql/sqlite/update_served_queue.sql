-- Change the settings of a queue of the server. A changed queue is never as old as a new one.
update onefold_served_queue
set
    settings = :settings,
    updated_at = max(:now, created_at + 1)
where shard = :shard and tenant = :tenant and name = :served

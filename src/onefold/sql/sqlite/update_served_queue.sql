-- Change the settings of a queue of the server.
update onefold_served_queue
set
    settings = :settings,
    updated_at = :now
where shard = :shard and tenant = :tenant and name = :served

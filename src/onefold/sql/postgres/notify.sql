-- Notify the workers of these queues at the commit.
select pg_notify(left('onefold.job', 63), notified.queue) from unnest(:queue::text[]) as notified (queue)

-- Notify the workers of these queues at the commit.
select pg_notify(left('onefold.job', 63), ring.queue) from unnest(:queue::text[]) as ring (queue)

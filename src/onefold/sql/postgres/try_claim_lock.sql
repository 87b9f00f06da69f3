-- Is this transaction the one that may have the key, and nobody's open one? It names no table: Citus then
-- takes the lock on the node that is asked, where insert_claims takes it too.
select
    case
        when :shared::boolean then pg_try_advisory_xact_lock_shared(:lock::bigint)
        else pg_try_advisory_xact_lock(:lock::bigint)
    end

-- Whether this transaction gets the advisory lock of the key. It names no table: Citus then takes the
-- lock on the node of the connection, where insert_claims takes it too.
select
    case
        when :shared::boolean then pg_try_advisory_xact_lock_shared(:lock::bigint)
        else pg_try_advisory_xact_lock(:lock::bigint)
    end

-- The claims that jobs have made: their steps and their once calls.
select c.tenant, c.surface, c.scope, c.key
from json_each(:rows) as r
cross join onefold_claim as c
    on c.shard = json_extract(r.value, '$[0]')
    and c.tenant = json_extract(r.value, '$[1]')
    and c.surface in ('once', 'step')
    and c.scope = json_extract(r.value, '$[2]')

"""The test cases, one module for each topic. A case receives a fixture named `subject`.

Each case names the rule that it tests, by its number in docs/reference/rules.md. Cases that need
two connections at once (races, isolation levels) are not here.
"""

from onefold_contract.cases.acks import *
from onefold_contract.cases.answers import *
from onefold_contract.cases.bad_input import *
from onefold_contract.cases.batches import *
from onefold_contract.cases.claims import *
from onefold_contract.cases.deliveries import *
from onefold_contract.cases.endings import *
from onefold_contract.cases.gates import *
from onefold_contract.cases.groups import *
from onefold_contract.cases.history import *
from onefold_contract.cases.leases import *
from onefold_contract.cases.limits import *
from onefold_contract.cases.lookups import *
from onefold_contract.cases.on_duplicate import *
from onefold_contract.cases.publish_keys import *
from onefold_contract.cases.replays import *
from onefold_contract.cases.rerun import *
from onefold_contract.cases.retention import *
from onefold_contract.cases.schedules import *
from onefold_contract.cases.scopes import *
from onefold_contract.cases.served_queues import *
from onefold_contract.cases.shards import *
from onefold_contract.cases.suppressed import *
from onefold_contract.cases.takes import *

"""The contract suite: every rule of Onefold, for any subject.

A test file that has a fixture named `subject` becomes the exam:

    import pytest
    from onefold.testing.contract import *
    from onefold.testing.subjects import SyncSubject

    @pytest.fixture(scope="module")
    def opened(tmp_path_factory):
        subject = SyncSubject(f"sqlite:///{tmp_path_factory.mktemp('exam')}/onefold.db")
        subject.open()
        yield subject
        subject.close()

    @pytest.fixture
    def subject(opened):
        opened.reset()
        return opened

`onefold.testing.subjects` has the ways of making calls that ship with Onefold; derive from
`Subject` for one of your own, and parametrize the fixture to examine several. The tests name the
rule that they prove, by its number in docs/reference/rules.md. What needs two connections at once
(races, isolation levels) is not here.
"""

from typing import Final

from onefold.errors.extra import Needs

with Needs("onefold[testing]"):
    import pytest

MODULES: Final = (
    "acks",
    "answers",
    "bad_input",
    "batches",
    "claims",
    "deliveries",
    "endings",
    "gates",
    "history",
    "groups",
    "leases",
    "limits",
    "lookups",
    "on_duplicate",
    "publish_keys",
    "replays",
    "rerun",
    "retention",
    "schedules",
    "scopes",
    "served_queues",
    "shards",
    "suppressed",
    "takes",
)

# Before they are imported: pytest then shows what was compared.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in MODULES))

from onefold.testing.contract.acks import *  # noqa: E402, F403
from onefold.testing.contract.answers import *  # noqa: E402, F403
from onefold.testing.contract.bad_input import *  # noqa: E402, F403
from onefold.testing.contract.batches import *  # noqa: E402, F403
from onefold.testing.contract.claims import *  # noqa: E402, F403
from onefold.testing.contract.deliveries import *  # noqa: E402, F403
from onefold.testing.contract.endings import *  # noqa: E402, F403
from onefold.testing.contract.gates import *  # noqa: E402, F403
from onefold.testing.contract.groups import *  # noqa: E402, F403
from onefold.testing.contract.history import *  # noqa: E402, F403
from onefold.testing.contract.leases import *  # noqa: E402, F403
from onefold.testing.contract.limits import *  # noqa: E402, F403
from onefold.testing.contract.lookups import *  # noqa: E402, F403
from onefold.testing.contract.on_duplicate import *  # noqa: E402, F403
from onefold.testing.contract.publish_keys import *  # noqa: E402, F403
from onefold.testing.contract.replays import *  # noqa: E402, F403
from onefold.testing.contract.rerun import *  # noqa: E402, F403
from onefold.testing.contract.retention import *  # noqa: E402, F403
from onefold.testing.contract.schedules import *  # noqa: E402, F403
from onefold.testing.contract.scopes import *  # noqa: E402, F403
from onefold.testing.contract.served_queues import *  # noqa: E402, F403
from onefold.testing.contract.shards import *  # noqa: E402, F403
from onefold.testing.contract.suppressed import *  # noqa: E402, F403
from onefold.testing.contract.takes import *  # noqa: E402, F403

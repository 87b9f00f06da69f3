"""The contract suite of Onefold: test cases for every rule, and the subjects that they run against.

`cases` has the tests, `subjects` the ways of calling Onefold. A test file that has a fixture named
`subject` runs them:

    import pytest
    from onefold_contract.cases import *
    from onefold_contract.subjects import SyncSubject

    @pytest.fixture(scope="module")
    def opened(tmp_path_factory):
        subject = SyncSubject(f"sqlite:///{tmp_path_factory.mktemp('contract')}/onefold.db")
        subject.open()
        yield subject
        subject.close()

    @pytest.fixture
    def subject(opened):
        opened.reset()
        return opened
"""

import pytest

# Before the cases are imported: pytest then shows the values that an assert compared.
pytest.register_assert_rewrite("onefold_contract.cases")

"""All rows of Onefold can be deleted, for tests; the installation stays."""

from onefold.operations.maintenance import empty_tables
from tests.fixtures.place import Place


def test_all_rows_are_deleted_and_the_tables_can_be_used(place: Place) -> None:
    with place.open() as onefold:
        onefold.enqueue("digest", unique_key="digest:42", unique_while="exists")
        onefold.enqueue("digest", idempotency_key="k-1")

        onefold.context.store.transact(empty_tables)

        assert not onefold.find().jobs
        assert onefold.enqueue("digest", unique_key="digest:42").inserted
        assert onefold.enqueue("digest", idempotency_key="k-1").inserted

"""Schedules as no call of ours would leave them."""

from datetime import datetime

from onefold.model.timestamps import to_micros
from tests.fixtures.place import Place


def set_next_tick(place: Place, moment: datetime) -> None:
    """Make every schedule due at a moment, however often that tick has been run."""
    with place.transaction() as connection:
        micros = to_micros(moment, "moment")
        connection.execute(f"update {place.table('schedule')} set next_tick = {micros}")


def set_zone(place: Place, zone: str) -> None:
    """Give every schedule a zone, whether it exists here or not."""
    with place.transaction() as connection:
        connection.execute(f"update {place.table('schedule')} set zone = '{zone}'")

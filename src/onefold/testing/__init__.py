"""What tests of applications import: a clock that obeys, and the contract suite.

    clock = Clock()
    onefold = Onefold("sqlite:///test.db", clock=clock)
    clock.advance(timedelta(hours=1))

`onefold.testing.contract` is the exam that every database, driver and colour of Onefold sits.
"""

from onefold.testing.clock import Clock

__all__ = ["Clock"]

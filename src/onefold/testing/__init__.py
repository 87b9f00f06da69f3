"""What tests of applications import: a clock that moves only when a test moves it.

    clock = Clock()
    onefold = Onefold("sqlite:///test.db", clock=clock)
    clock.advance(timedelta(hours=1))

The contract suite of Onefold is a distribution of its own, `onefold-contract`.
"""

from onefold.testing.clock import Clock

__all__ = ["Clock"]

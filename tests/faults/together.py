"""Processes that begin their work together."""

from collections.abc import Sequence

from tests.faults.callers import start


def at_once(script: str, arguments: Sequence[tuple[object, ...]]) -> list[list[str]]:
    """Run a script in a process for each of these arguments; the words that each of them says.

    It says "ready" before its work, and begins when it is told a line.
    """
    running = [start(script, *given) for given in arguments]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate()[0].split() for process in running]
    assert [process.returncode for process in running] == [0] * len(running)
    return said

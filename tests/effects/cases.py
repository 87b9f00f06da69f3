"""The cases of steps that these tests cover, by number, in our own words.

`tests/claims/test_cases.py` fails where a number is named by no test, or a test names a number that
is not here.
"""

CASES = {
    50: "a step that is over is answered with its stored result, and not done again",
    51: "a crash after the effect and before the record: the step is done again",
    52: "an effect and its record in one transaction: exactly once, wherever it crashes",
    53: "a step that fails is tried again, counted, with pauses, and not yet given up",
    54: "a step that failed for good raises the same exception on a rerun, or a wrapper",
    55: "code that asks for another step at the same place is refused, and told both names",
    56: "steps of one name are told apart by their number, or by a key",
    57: "a key with other arguments is refused",
    58: "steps at the same time are matched by key, not by who was first",
    59: "time, randomness and ids are recorded",
    60: "a result that cannot be stored is an error, and the step does not count as done",
    61: "so is one that is too large: nothing is ever cut off",
    62: "two workers with one job: one record, and the other adopts it or is told to stop",
    63: "a step inside a step is a part of it",
    65: "a finished job that is asked for again answers with its stored result",
    66: "with another input, it says so",
    68: "a cancelled job stops at the next step; the record of a running one is still written",
    70: "a job that comes back is the same execution, and not told that somebody is at work",
    71: "an operator sees steps, attempts, durations and results, these redacted if need be",
    72: "the key for a third party is the same over attempts, one per job and step",
}

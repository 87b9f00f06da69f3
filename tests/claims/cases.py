"""The cases of claims and locks that these tests cover, by number, in our own words.

`test_cases.py` fails where a number is named by no test, or a test names a number that is not here.
"""

CASES = {
    1: "a fence is greater than every earlier one of its name, over release, expiry, sweep",
    2: "a holder that slept past its lease is refused after its successor wrote",
    3: "and before its successor wrote, since the issuing row is asked in the same transaction",
    4: "the same word of the same holder twice is one word; its fence in other hands is nothing",
    5: "the check of a fence and the write it guards are one transaction",
    6: "a lease renewed in time is longer, under the same fence",
    7: "a lease that has ended is not revived: it is acquired anew, under a new fence",
    8: "a release by somebody else, or after the lease, does nothing and says False",
    9: "what a killed process held is free after its lease, and a poll at most",
    10: "what hangs on a connection is free when the connection drops",
    11: "nothing hangs on a session, so a pooler in transaction mode may stand between",
    12: "the store's clock grants; the holder's own counts, from before it asked, less a margin",
    13: "a holder whose margin is gone knows, and stops before the effect",
    14: "what could not be had is told: raised, or None where the caller asked for that",
    15: "a key made of arguments binds them by the signature, defaults included, and is a digest",
    16: "any text may name a lock",
    17: "asking again for what one holds is an error at once, never a wait for oneself",
    18: "waiters jitter, and their waiting is bounded",
    19: "an operator's release fences the holder off",
    20: "the lock that may overlap says so, and what may not has another name",
    21: "who knows no fences gets a derived key, called best effort",
    30: "a message's ledger row and its effect are one commit",
    31: "a duplicate is skipped, and the stored result is there",
    32: "another consumer handles the same message",
    33: "two workers with one message: the constraint decides, the second is told and then skips",
    34: "an effect that fails takes the ledger row with it",
    35: "a crash after an outside effect is met as stated: run again, verified, or held",
    36: "a duplicate older than the ledger remembers is refused, never silently run again",
    38: "one bad message of a batch costs only itself",
    39: "an outgoing job and the business row are both committed or neither",
    43: "what spans two databases is not called exactly once",
}

"""The worker takes jobs, runs their handlers, and reports the outcomes.

`producer` takes and reports, `executor` runs handlers, `chores` does maintenance.
"""

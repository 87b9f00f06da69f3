"""The worker: takes jobs, runs their handlers, and says how it went.

`worker` is the whole, `producer` takes and reports, `executor` runs, `heart` keeps leases alive,
`chores` tidies up.
"""

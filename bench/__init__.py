"""Onefold beside raw SQL and beside its peers, measured in one run on one machine.

    values      what is measured, as data: orders, laps, runs, measurements, targets
    plan        the measurements, their contestants and the ratios that are wanted
    duplicate_plan those of keys, new and known
    worker_plan those of worker processes
    http_plan   those of keyed requests
    contestants what each contestant does between the start and the stop of the watch
    play        the process of one run: reads an order, prints a lap
    crew        worker processes, begun together and watched from outside
    work        a worker process: reads a shift, counts in the tally
    tally       how many jobs each worker process has handled, in shared memory
    rounds      who runs when: contestants alternate; a run that was stolen from is set aside
    verdict     medians, ratios, targets
    usage       CPU time and memory of processes, as the system says
    meter       CPU time of PostgreSQL's processes and its WAL, while the watch runs
    postgres    a real server from a wheel, with the durability of production
    report      the tables and the JSON

Run it with `make bench`.
"""

"""What each contestant does while the watch runs.

A function takes the order and the watch, prepares everything outside of it (connections open,
statements prepared by a few calls, tables new), and does the order's jobs inside of it. Work that
an application would have to do for the call, such as making a `NewJob`, belongs inside.
"""

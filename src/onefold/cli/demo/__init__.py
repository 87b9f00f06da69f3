"""`onefold demo`. Nothing is imported here: the processes of the demo start faster without."""

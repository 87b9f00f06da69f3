"""`onefold demo`. Nothing is imported here, so that its processes start faster."""

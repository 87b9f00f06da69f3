"""The statements, one per file. Not Python: see `onefold.operations.statement`."""

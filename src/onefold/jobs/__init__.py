"""Functions as jobs: definition, arguments, options."""

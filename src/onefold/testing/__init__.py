"""For tests: the contract suite, a clock, a real database per test."""

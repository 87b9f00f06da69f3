"""Examples that run. The tests run them too, and kill them in the middle."""

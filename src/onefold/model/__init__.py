"""Values, frozen and pure: what may be asked for, and what follows from it. No I/O here."""

"""Values, frozen and pure: their checks, and the decisions about them. No I/O here."""

"""Webhooks: verify → claim → process, in that order, once per event."""

"""Listeners for others' instruments. Each module needs its library; nothing else of Onefold does.

`onefold.telemetry.opentelemetry` makes spans, `onefold.telemetry.prometheus` counts.
"""

"""Telemetry: `opentelemetry` creates spans, `prometheus` counts. Each module needs its library."""

"""The surfaces: places where attempts come in, over HTTP. Each translates a claim's answer."""

"""The API that applications type: `Onefold`, `Tenant`, `Within` and their nouns.

`Onefold` has the calls of every day. The rest is grouped by nouns: `onefold.queues`, `.keys`,
`.schedules`, `.dead`, `.api_keys` and `.deliveries`. All of them share one `Context`.
"""

"""The API of an application: `Onefold`, `Tenant`, `Within` and their nouns.

`Onefold` has the most frequent calls. The others are grouped by nouns: `onefold.queues`, `.keys`,
`.schedules`, `.dead`, `.api_keys` and `.deliveries`. All of them share one `Context`.
"""

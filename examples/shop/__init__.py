"""A small shop with an API, a form, a webhook and a job. Repeated requests have one effect."""

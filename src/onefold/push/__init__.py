"""Push: jobs are sent by POST to the endpoint of their queue, and the responses decide about them.

`push_worker` is a worker whose handler is `deliver`; `sender` does the HTTP, `response_policy`
reads responses, `endpoint_health` holds queues whose endpoint is down.
"""

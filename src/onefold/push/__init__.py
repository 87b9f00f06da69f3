"""Push: jobs are POSTed to the endpoint of their queue, and its answers are believed.

`courier` is the whole, `sender` does the HTTP, `address` says where to, `envelope` what is sent,
`reading` what an answer means, `breaker` when an endpoint is left alone.
"""

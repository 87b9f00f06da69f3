"""The endpoints, a file for each part of the API. Each lists its routes as `ROUTES`."""

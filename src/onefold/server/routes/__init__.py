"""The endpoints, one module for each part of the API. Each lists its routes as `ROUTES`."""

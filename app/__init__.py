"""The service: HTTP in, HTTP out; the smart-HTTP client, jobs, settings and the command line."""

"""Reads: pure functions from a view and parsed parameters to answers; run on the event loop or in a worker."""

"""Real storage servers for tests: started on loopback, with their state in a temporary folder, and stopped cleanly.

    python -m tests.services install seaweed ceph minio rclone     what they need, where it can be had
    python -m tests.services run seaweed                           start one, print how to reach it, stop at Ctrl-C

Tests ask `tests.services.running.get(name)`, or `tests.services.stores.url(name, prefix)` for a store on one. A server
that is not installed is skipped by name; those that PACKHOUSE_TEST_SERVICES names (separated by commas) must be there.
PACKHOUSE_TEST_STORE names the store (`stores.STORES`) that the service of the read tests keeps its repositories in.
"""

"""git's formats and the algorithms over them: bytes in, answers out, no IO of any kind."""

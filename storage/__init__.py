"""Where bytes live: backends, the repository layout, publishing, and the views that reads work on."""

"""The search for the fastest configuration: ask, run, record, tell."""

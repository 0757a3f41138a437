"""Child processes that may hang, crash or eat memory without harming their parent."""

"""The parts of `python -m tasks up`; the command itself is `tasks.up`."""

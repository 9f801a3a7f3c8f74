"""A fleet that does not exist: nodes, people, jobs and faults, as data and pure functions.

Invariant: every reading is a function of (plan, seed, node, GPU, time) alone: no clock, no I/O, no global random state.
Only `outage`, which makes HTTP fail on purpose, knows what time it is.
"""

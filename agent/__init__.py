"""The daemon on a GPU node: it measures, isolates, runs jobs and keeps an exact record of use.

Invariant: nothing here imports `pricing` or `tui`; what others may rely on is `agent.wire` and `agent.client`.
"""

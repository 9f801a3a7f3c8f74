"""Training jobs on this node: their queue, their start, their end, and what became of them.

Invariant: a job starts at most once per attempt, runs on whatever happens to the agent, and its GPUs are given to others
only when nothing of it is left.
"""

"""The process that owns one attempt of a job, outside the agent: it starts it, keeps its log, stops it, records its end.

Invariant: whatever happens to the agent, the job runs on, its log is kept, its exit is recorded durably exactly once, and
nothing of it is left. One thread, the standard library only (`python -I -S`), at most 8 MB of memory.
"""

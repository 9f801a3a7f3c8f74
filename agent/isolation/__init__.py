"""What holds a job in its limits: cgroups (v2, v1, hybrid, systemd scopes) and MPS shares of a GPU.

Invariant: what the host cannot enforce is said, never silently skipped.
"""

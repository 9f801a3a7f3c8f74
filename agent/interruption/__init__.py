"""Notices that the cloud will take this node away: EC2, GCP, Azure.

Invariant: a notice is told once, with the time that is left by a monotonic clock.
"""

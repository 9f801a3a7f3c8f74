"""The money: prices, the ledger of use, and what the two make together.

Invariant: imports nothing of ours, reads no clock and no environment; only `pricing.sources` touches the network.
"""

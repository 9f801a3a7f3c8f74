"""The commands of `rackrate`, one file per family.

Invariant: each is a function `(context, arguments) -> ExitCode`; data goes to stdout, everything else to stderr.
"""

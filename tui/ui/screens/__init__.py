"""Screens. Invariant: each redraws itself from the fleet when told that a second has passed; none does I/O."""

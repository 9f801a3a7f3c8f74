"""What each pane says, as lines. Invariant: pure functions of the fleet and the time; no widget, no clock."""

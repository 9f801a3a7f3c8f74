"""The full-screen app. Invariant: the only package of `tui` that imports Textual; what it shows comes from `tui.fleet`."""

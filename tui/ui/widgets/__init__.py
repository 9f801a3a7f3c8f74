"""Widgets. Invariant: each paints cached lines and marks only what changed as dirty."""

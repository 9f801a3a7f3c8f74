"""What a person touches: the full-screen app and the same commands without a screen.

Invariant: only `tui.ui` imports Textual; of the agent only `agent.wire` and `agent.client` are known here.
"""

__version__ = "0.1.0"

"""Calls, contexts and judging in sandboxes of this machine: what `sandtimer.Sandbox` is made of."""

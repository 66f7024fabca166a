"""The client of a Sandtimer server: what `sandtimer.Client` is made of."""

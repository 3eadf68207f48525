"""Requests: merged, retried, hedged, limited and logged."""

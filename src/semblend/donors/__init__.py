"""Donor announcements as subscribers see them: payloads decoded, applied to one index, looked up per request."""

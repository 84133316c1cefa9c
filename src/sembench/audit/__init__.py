"""Auditing a manifest: defects that would make its figures meaningless."""

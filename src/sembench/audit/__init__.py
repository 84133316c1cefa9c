"""Auditing a manifest: would its figures mean what they say?"""

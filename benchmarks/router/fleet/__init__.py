"""Sixteen mocker workers behind our router, behind Dynamo's, and in turn."""

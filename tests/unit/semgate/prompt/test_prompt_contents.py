"""Contents of a request: labelled, and keyed by tenant."""

from __future__ import annotations

import json

from semgate.http.request_body import read_request
from semgate.prompt.contents import contents_of


def test_contents_are_labelled_and_belong_to_their_tenant() -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "system", "content": "Be kind."}]}).encode()
    of_one, again, of_two = (
        contents_of(read_request("/v1/chat/completions", (), body, tenant), body) for tenant in ("one", "one", "two")
    )
    assert of_one == again
    assert [each.label for each in of_one] == [0]
    assert {each.key for each in of_one}.isdisjoint(each.key for each in of_two)
    assert all(each.tokens >= 1 for each in of_one)

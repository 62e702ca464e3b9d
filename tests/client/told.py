"""A client whose service is a function of the test."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from rayctsl.client import Client


class Told(Client):
    """Example: Told(lambda request: httpx.Response(200, json={"id": "ft-1"})).job("ft-1")"""

    def __init__(self, answer: Callable[[httpx.Request], httpx.Response]) -> None:
        super().__init__("http://service")
        self._http.close()
        self._http = httpx.Client(base_url=self.url, transport=httpx.MockTransport(answer))

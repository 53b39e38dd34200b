"""The pages of Spark, as a visitor without any rights reads them."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

from deadline import PATIENCE

_API = ("", "/environment", "/jobs", "/stages", "/sql?details=true", "/executors")
_NOT_READ = ("kill", "heapHistogram", "threadDump", "/static/", "sort=")


def read(roots: Iterable[str]) -> dict[str, str]:
    """All pages of these servers that can be reached by links, as text."""
    found, waiting = dict[str, str](), [*roots]
    servers = {urlsplit(root).netloc for root in waiting}
    while waiting:
        page = waiting.pop()
        if page not in found and urlsplit(page).netloc in servers and not any(one in page for one in _NOT_READ):
            found[page] = _text(page)
            waiting += [urljoin(page, link).partition("#")[0] for link in re.findall(r"href=['\"]([^'\"]+)", found[page])]
    return found


def api(ui: str, application: str) -> list[str]:
    """The addresses of what the page of a driver has as JSON."""
    return [f"{ui}/api/v1/applications/{application}{part}" for part in _API]


def _text(page: str) -> str:
    try:
        with urlopen(page, timeout=PATIENCE) as answer:
            return html.unescape(answer.read().decode(errors="replace"))
    except HTTPError as error:
        return html.unescape(error.read().decode(errors="replace"))

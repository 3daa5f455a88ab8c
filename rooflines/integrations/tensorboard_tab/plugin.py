"""The plugin: its routes serve the list of sources and their pages. Only names from the last search of the log directory are served,
so no request leads to another file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from rooflines.errors import RooflinesError
from rooflines.integrations.tensorboard_tab.results import Results, in_one_line
from rooflines.integrations.tensorboard_tab.sources import Scan, Source

# The log directory is searched again after this time, and a request waits for a slow search no longer than the second.
RESCAN_S, PATIENCE_S = 2.0, 2.0
_FILES = {"tab.js": "text/javascript", "tab.css": "text/css"}
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


class RooflinesTab(base_plugin.TBPlugin):  # type: ignore[misc]
    """The tab "Rooflines" of TensorBoard."""

    plugin_name = "rooflines"

    def __init__(self, context: Any) -> None:
        # Directories, each with a name or without.
        spec = [re.sub(r"^[^:/\\]{2,}:(?!//)", "", part) for part in (getattr(context.flags, "logdir_spec", "") or "").split(",")]
        roots = [root for root in ([context.logdir] if context.logdir else spec) if root and "://" not in root]
        self._scan, self._results = Scan(roots), Results()
        self._sources: dict[str, Source] = {}
        self._guard, self._searched, self._searched_s = threading.Lock(), threading.Event(), float("-inf")
        self._searched.set()

    def get_plugin_apps(self) -> dict[str, Any]:
        """The routes."""
        return dict.fromkeys(("/tab.js", "/tab.css", "/runs", "/page"), self._serve)

    def frontend_metadata(self) -> Any:
        """How TensorBoard shows the tab."""
        return base_plugin.FrontendMetadata(es_module_path="/tab.js", tab_name="Rooflines", disable_reload=True)

    def is_active(self) -> bool:
        """Whether there is anything to show."""
        return bool(self._search())

    def _search(self) -> dict[str, Source]:
        """The sources of the last search, after a new one in a thread if that is long ago."""
        with self._guard:
            if self._searched.is_set() and time.monotonic() - self._searched_s > RESCAN_S:
                self._searched.clear()
                threading.Thread(target=self._search_now, name="rooflines-search", daemon=True).start()
        self._searched.wait(PATIENCE_S)
        return self._sources

    def _search_now(self) -> None:
        try:
            self._sources = self._scan()
        finally:
            self._searched_s = time.monotonic()
            self._searched.set()

    @wrappers.Request.application  # type: ignore[untyped-decorator]
    def _serve(self, request: Any) -> Any:
        route, status, hashes = request.path.rpartition("/")[2], 200, list[str]()
        content: Any
        if route in _FILES:
            content, kind = (Path(__file__).parent / route).read_text("utf-8"), _FILES[route]
        elif route == "runs":
            content, kind = self._runs(request.args.get("seen")), "application/json"
        else:
            content, kind, status = self._page(request.args.getlist("run"), request.args.get("theme"))
            # TensorBoard's policy allows scripts of a page by their hash; the page's own policy forbids everything else.
            hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in _SCRIPT.findall(content)]
        return http_util.Respond(request, content, kind, code=status, csp_scripts_sha256s=hashes)

    def _runs(self, seen: str | None) -> dict[str, Any]:
        """The list, or only its tag if the browser has ``seen`` it."""
        sources = list(self._search().values())
        self._results.fill(sources)
        runs = [
            {"name": one.name, "kind": one.kind, "stamp": one.stamp, "changed_s": one.changed_ns / 1e9, "bytes": one.bytes}
            | self._results.figures(one)
            for one in sources
        ]
        found = {"runs": runs, "cut": self._scan.cut, "searching": not self._searched.is_set(), "roots": self._scan.roots}
        tag = hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]
        return {"tag": tag} if seen == tag else {"tag": tag, **found}

    def _page(self, names: list[str], theme: str | None) -> tuple[str, str, int]:
        """The page of a source or the comparison of two, or a line that says why there is none; with its type and status."""
        found = self._sources or self._search()
        sources = [found[name] for name in names if name in found]
        if not 1 <= len(names) <= 2 or len(sources) != len(names):
            return "This run is not in the log directory.", "text/plain", 404
        try:
            text = self._results.page(sources)
        except RooflinesError as error:
            return in_one_line(error, sources), "text/plain", 200  # a browser would log another status as an error of the page
        if theme in ("light", "dark"):
            text = text.replace('<html lang="en"', f'<html lang="en" data-theme="{theme}"', 1)
        return text, "text/html", 200

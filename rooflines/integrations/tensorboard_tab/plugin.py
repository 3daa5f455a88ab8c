"""The plugin: its routes, which serve the list of sources and their pages. Only names from the last scan of the log directory are
served, so no request leads to another file."""

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
from rooflines.integrations.tensorboard_tab.results import Results
from rooflines.integrations.tensorboard_tab.sources import Scan, Source

# The log directory is searched again after this time, and a request waits for a slow search no longer than the second.
RESCAN_S, PATIENCE_S = 2.0, 2.0
_HERE = Path(__file__).parent
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_THEMES = ("light", "dark")


class RooflinesTab(base_plugin.TBPlugin):  # type: ignore[misc]
    """The tab "Rooflines" of TensorBoard."""

    plugin_name = "rooflines"

    def __init__(self, context: Any) -> None:
        spec = getattr(context.flags, "logdir_spec", "") or ""
        # A spec is a list of directories, each with a name or without.
        parts = [re.sub(r"^[^:/\\]{2,}:", "", part) for part in spec.split(",")]
        roots = [context.logdir] if context.logdir else filter(None, parts)
        self._scan, self._results = Scan([root for root in roots if "://" not in root]), Results()
        self._sources: dict[str, Source] = {}
        self._scanned_s, self._scanning, self._guard = float("-inf"), threading.Event(), threading.Lock()
        self._scanning.set()

    def get_plugin_apps(self) -> dict[str, Any]:
        """The routes."""
        return {"/tab.js": self._script, "/tab.css": self._styles, "/runs": self._runs, "/page": self._page}

    def frontend_metadata(self) -> Any:
        """How TensorBoard shows the tab."""
        return base_plugin.FrontendMetadata(es_module_path="/tab.js", tab_name="Rooflines", disable_reload=True)

    def is_active(self) -> bool:
        """Whether there is anything to show."""
        return bool(self._found())

    def _found(self) -> dict[str, Source]:
        """The sources of the last search, and a new search if that is long ago."""
        with self._guard:
            if self._scanning.is_set() and time.monotonic() - self._scanned_s > RESCAN_S:
                self._scanning.clear()
                threading.Thread(target=self._search, name="rooflines-scan", daemon=True).start()
        self._scanning.wait(PATIENCE_S)
        return self._sources

    def _search(self) -> None:
        try:
            self._sources = self._scan()
        finally:
            self._scanned_s = time.monotonic()
            self._scanning.set()

    @wrappers.Request.application
    def _script(self, request: wrappers.Request) -> wrappers.Response:
        return _respond(request, (_HERE / "tab.js").read_text("utf-8"), "text/javascript")

    @wrappers.Request.application
    def _styles(self, request: wrappers.Request) -> wrappers.Response:
        return _respond(request, (_HERE / "tab.css").read_text("utf-8"), "text/css")

    @wrappers.Request.application
    def _runs(self, request: wrappers.Request) -> wrappers.Response:
        """The list as JSON, or only its tag if the browser has it already (``?seen=TAG``)."""
        sources = list(self._found().values())
        self._results.fill(sources)
        runs = [
            {
                "name": source.name, "kind": source.kind, "stamp": source.stamp, "changed_s": source.changed_ns / 1e9,
                "bytes": source.bytes, **self._results.figures(source),
            }
            for source in sources
        ]  # fmt: skip
        found = {"runs": runs, "cut": self._scan.cut, "searching": not self._scanning.is_set(), "roots": self._scan.roots}
        tag = hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]
        return _respond(request, {"tag": tag} | ({} if request.args.get("seen") == tag else found), "application/json")

    @wrappers.Request.application
    def _page(self, request: wrappers.Request) -> wrappers.Response:
        """The page of the source ``?run=NAME``, or the comparison of two; an error is one line of text."""
        names, theme = request.args.getlist("run"), request.args.get("theme")
        found = self._sources or self._found()
        sources = [found[name] for name in names if name in found]
        if not 1 <= len(names) <= 2 or len(sources) != len(names):
            return _respond(request, "This run is not in the log directory.", "text/plain", code=404)
        try:
            text = self._results.page(sources)
        except RooflinesError as error:
            return _respond(request, " ".join(str(error).split()), "text/plain", code=422)
        if theme in _THEMES:
            text = text.replace('<html lang="en"', f'<html lang="en" data-theme="{theme}"', 1)
        # TensorBoard's policy allows scripts of a page by their hash; the page's own policy forbids everything else.
        hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in _SCRIPT.findall(text)]
        return _respond(request, text, "text/html", csp_scripts_sha256s=hashes)


def _respond(request: wrappers.Request, content: Any, kind: str, **options: Any) -> wrappers.Response:
    response: wrappers.Response = http_util.Respond(request, content, kind, **options)
    return response

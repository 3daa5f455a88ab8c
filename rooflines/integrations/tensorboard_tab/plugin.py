"""The plugin: its routes serve the list of sources and their pages. Only names from the last search of the
log directory are served, so no request leads to another file."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from pathlib import Path
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from rooflines.integrations.tensorboard_tab.results import Results
from rooflines.integrations.tensorboard_tab.sources import Scan, TabSource

_FILES = {"tab.js": "text/javascript", "tab.css": "text/css"}
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


class RooflinesTab(base_plugin.TBPlugin):  # type: ignore[misc]
    """The tab "Rooflines" of TensorBoard."""

    plugin_name = "rooflines"

    def __init__(self, context: Any) -> None:
        self._scan, self._results = Scan(context.logdir), Results()
        self._guard, self._search = threading.Lock(), threading.Thread()

    def get_plugin_apps(self) -> dict[str, Any]:
        """The routes."""
        return dict.fromkeys(("/tab.js", "/tab.css", "/runs", "/page"), self._serve)

    def frontend_metadata(self) -> Any:
        """How TensorBoard shows the tab."""
        return base_plugin.FrontendMetadata(
            es_module_path="/tab.js", tab_name="Rooflines", disable_reload=True
        )

    def is_active(self) -> bool:
        """Whether there is anything to show."""
        return bool(self._found())

    def _found(self) -> dict[str, TabSource]:
        """Return the sources of a new search, or those of the previous one if the search takes longer than
        two seconds."""
        with self._guard:
            if not self._search.is_alive():
                self._search = threading.Thread(target=self._scan, name="rooflines-search", daemon=True)
                self._search.start()
        self._search.join(timeout=2.0)
        return self._scan.sources

    @wrappers.Request.application  # type: ignore[untyped-decorator]
    def _serve(self, request: Any) -> Any:
        route, status, hashes = request.path.rpartition("/")[2], 200, list[str]()
        content: Any
        if route in _FILES:
            content, kind = (Path(__file__).parent / route).read_text("utf-8"), _FILES[route]
        elif route == "runs":
            sources, kind = self._found().values(), "application/json"
            self._results.fill(sources)
            content = {
                "runs": [source._asdict() | self._results.figures(source) for source in sources],
                "cut": self._scan.cut,
                "searching": self._search.is_alive(),
                "root": self._scan.root,
            }
        else:
            content, kind, status = self._page(request.args.getlist("run"), request.args.get("theme"))
            # TensorBoard's policy allows scripts of a page by their hash; the page's own policy forbids
            # everything else.
            hashes = [
                base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
                for text in _SCRIPT.findall(content)
            ]
        return http_util.Respond(request, content, kind, code=status, csp_scripts_sha256s=hashes)

    def _page(self, names: list[str], theme: str | None) -> tuple[str, str, int]:
        """The page of a source or the comparison of two, or a line that says why there is none; with its type
        and status."""
        found = self._scan.sources or self._found()
        sources = [found[name] for name in names if name in found]
        if not 1 <= len(names) <= 2 or len(sources) != len(names):
            return "This run is not in the log directory.", "text/plain", 404
        text, kind = self._results.page(sources)
        if theme in ("light", "dark"):
            text = text.replace('<html lang="en"', f'<html lang="en" data-theme="{theme}"', 1)
        return (
            text,
            kind,
            200,
        )  # also without a page: a browser would log another status as an error of the page

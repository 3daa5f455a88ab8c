"""The browser and its pages, for every test of what is rendered."""

from tests.reports.render.browser import browser, opened, reports  # noqa: F401 (fixtures)

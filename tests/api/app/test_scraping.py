"""The port for scrapers: metrics and health without a key, and nothing else."""

import httpx

from draftwerk.api.app.app import create_app
from draftwerk.api.app.scraping import ScrapeApp
from tests.api.conftest import serving
from tests.api.support.fake_engine import FakeEngine


async def test_metrics_are_read_without_a_key_and_models_are_not():
    async with serving(FakeEngine(), api_key=["secret"]) as served:
        transport = httpx.ASGITransport(ScrapeApp(create_app(served.state)))
        async with httpx.AsyncClient(transport=transport, base_url="http://scrape") as http:
            codes = {
                path: (await http.get(path)).status_code
                for path in ("/metrics", "/health", "/ready", "/v1/models", "/", "/debug/trace")
            }
            page = (await http.get("/metrics")).text
        keyed = await served.http.get("/metrics")
    assert codes == {
        "/metrics": 200, "/health": 200, "/ready": 200, "/v1/models": 404, "/": 404,
        "/debug/trace": 404,
    }  # fmt: skip
    assert 'draftwerk_blocks{model_name="fake-model"}' in page
    assert "draftwerk_build_info{python=" in page
    assert keyed.status_code == 401

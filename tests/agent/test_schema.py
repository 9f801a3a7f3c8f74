"""The OpenAPI schema against the running app: whatever it allows is answered as it says (schemathesis)."""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection

from agent.server import create_app
from tests.support.agents import TOKEN, node_agent, sample

HEADERS = {"Authorization": f"Bearer {TOKEN}", "Host": "127.0.0.1"}


def _schema() -> schemathesis.BaseSchema:
    agent = node_agent(token=TOKEN)
    agent.step(sample(1))
    return schemathesis.openapi.from_asgi("/schema", create_app(agent, failures_a_minute=10**9), headers=HEADERS)


schema = _schema().exclude(path="/v1/stream")


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_the_schema_says(case: schemathesis.Case) -> None:
    # an unknown query parameter is ignored, so that a newer client may ask an older agent
    case.call_and_validate(headers=HEADERS, excluded_checks=[negative_data_rejection])

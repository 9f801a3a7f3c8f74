"""The OpenAPI schema against the running app: whatever it allows is answered as it says (schemathesis).

The jobs behind it are a stand-in: whatever is made up here, nothing is started.
"""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance, unsupported_method

from agent import wire
from agent.security import OWNER
from agent.server import create_app
from tests.support.agents import TOKEN, node_agent, sample
from tests.support.job_service import JobService

HEADERS = {"Authorization": f"Bearer {TOKEN}", "Host": "127.0.0.1"}


def _schema() -> schemathesis.BaseSchema:
    agent = node_agent(token=TOKEN)
    agent.step(sample(1))
    agent.jobs = jobs = JobService()
    jobs.write(jobs.submit(wire.JobSpec(command=("true",), name="one"), OWNER).id, b"a line\n")
    return schemathesis.openapi.from_asgi("/schema", create_app(agent, failures_a_minute=10**9), headers=HEADERS)


schemathesis.serializer("application/gzip")(lambda context, value: b"not an archive")
schema = _schema().exclude(path=["/v1/stream", "/v1/jobs/{id}/log"])
log = _schema().include(path="/v1/jobs/{id}/log")


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_the_schema_says(case: schemathesis.Case) -> None:
    # an unknown query parameter is ignored, so that a newer client may ask an older agent; and what a job may be is
    # more than a schema can say (no more GPUs than there are, a command that is not empty)
    case.call_and_validate(headers=HEADERS, excluded_checks=[negative_data_rejection, positive_data_acceptance])


@log.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_about_a_log_is_as_the_schema_says(case: schemathesis.Case) -> None:
    case.query = {**(case.query or {}), "wait": 0}
    case.call_and_validate(
        headers=HEADERS, excluded_checks=[negative_data_rejection, positive_data_acceptance, unsupported_method]
    )

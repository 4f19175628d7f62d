"""Parts of the configuration that name places: metric sources, remote clusters, Services, and the leader's Lease.

On no path of requests. Secrets are files that the administrator mounts; here stand their paths, never their contents.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from headrace_api.base import LabelName
from headrace_api.engine import MetricLabel, MetricLabelValue
from headrace_api.units import Duration, Quantity
from headrace_operator.loader.config_base import ConfigStruct

OWN_PAGES: Final = "scrape"
"""In place of a metric source's name: the engines' and routers' own pages."""

LOCAL: Final = "local"
"""In place of a cluster's name: the operator's own."""

FilePath = Annotated[str, Meta(min_length=1, max_length=1024, pattern=r"^/[^\x00-\x1f]*$", description="A whole path.")]
BaseUrl = Annotated[
    str,
    Meta(
        min_length=8,
        max_length=1024,
        pattern=r"^https?://[A-Za-z0-9.\[\]:_-]+(/[A-Za-z0-9._~/-]*)?$",
        description="http(s)://host[:port][/prefix]; no credentials, no query.",
    ),
]
HeaderName = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9-]+$")]
HeaderValue = Annotated[str, Meta(min_length=1, max_length=1024, pattern=r"^[!-~]([ -~]*[!-~])?$")]


class ServiceAddress(ConfigStruct, frozen=True, kw_only=True):
    """A Service of the operator's own cluster; port: the Service's."""

    namespace: LabelName
    name: LabelName
    port: Annotated[int, Meta(ge=1, le=65535)]

    @property
    def key(self) -> str:
        """``namespace/name:port``, as endpoints are keyed."""
        return f"{self.namespace}/{self.name}:{self.port}"


class Tenant(ConfigStruct, frozen=True, kw_only=True):
    """The header by which a shared Prometheus (Mimir, Thanos, Cortex) tells tenants apart."""

    value: HeaderValue
    header: HeaderName = "X-Scope-OrgID"


class BasicAuth(ConfigStruct, frozen=True, kw_only=True):
    """HTTP basic authentication; the password is a file's first line."""

    username: Annotated[str, Meta(min_length=1, max_length=256, pattern=r"^[^:\x00-\x1f\x7f]+$")]
    password_file: FilePath


class SourceAuth(ConfigStruct, frozen=True, kw_only=True):
    """One of the two. Files are read again before each round of queries, so that a rotated secret counts at once."""

    bearer_token_file: FilePath | None = None
    basic: BasicAuth | None = None


class MetricSource(ConfigStruct, frozen=True, kw_only=True):
    """A Prometheus, or what answers like one.

    interval: seconds between rounds of queries. timeout: of one query with its retry. matchers: labels that every
    series must have, such as the cluster where one Prometheus holds several. replica_labels: those by which copies of
    a high-availability pair differ; they are left out, and copies count once. max_answer: a larger answer is refused.
    """

    name: LabelName
    url: BaseUrl
    interval: Duration = "5s"
    timeout: Duration = "5s"
    tenant: Tenant | None = None
    auth: SourceAuth | None = None
    ca_file: FilePath | None = None
    matchers: Annotated[dict[MetricLabel, MetricLabelValue], Meta(max_length=16)] = {}
    replica_labels: Annotated[tuple[MetricLabel, ...], Meta(max_length=8)] = ("prometheus_replica", "__replica__")
    max_answer: Quantity = "64Mi"


class ClusterConfig(ConfigStruct, frozen=True, kw_only=True):
    """A remote cluster that tables go to; the kubeconfig is a mounted file."""

    name: LabelName
    kubeconfig_file: FilePath


class LeaderElection(ConfigStruct, frozen=True, kw_only=True):
    """Times of the leader's Lease: how long it holds, how long renewals may fail, how often they are tried."""

    lease_duration: Duration = "15s"
    renew_deadline: Duration = "10s"
    retry_period: Duration = "2s"

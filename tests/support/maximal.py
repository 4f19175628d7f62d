"""Manifests that between them set every field of both kinds; a test holds that none is missing."""

from __future__ import annotations

from typing import Any

import yaml

NAMESPACE = "inference"
_TEXT = """\
kind: InferenceEngine
metadata: {name: maximal-service, labels: {tier: maximal}}
spec:
  models: [{name: maximal, servedName: org/Maximal-70B, adapters: [legal-lora, sql-lora]}]
  endpoints:
    service: {name: maximal, port: 8000}
    urls: ["https://a.example:8443", "https://[2001:db8::1]:8443"]
    replicas: 40
    tls: {serverName: a.example, caFrom: {configMap: {name: ca, key: ca.crt}}}
    auth: {secretRef: {name: keys, key: maximal}}
  location: {region: us-east-1, zone: us-east-1a, cluster: gpu-use1}
  residency: [us, ca]
  runtime: SGLang
  hardware: {accelerator: H100-80GB, count: 4}
  capabilities: [tools, vision]
  capacity:
    perReplica:
      requestsPerSecond: 1500m
      prefillTokensPerSecond: 40k
      decodeTokensPerSecond: 6000
      maxConcurrency: 256
      kvCacheTokens: 400k
  maxModelLen: 131072
  profile:
    reference: {inputTokens: 900, outputTokens: 220}
    ttft: [{utilizationPercent: 0, latency: 90ms}, {utilizationPercent: 100, latency: 2s}]
    tbot: [{utilizationPercent: 0, latency: 9.5ms}, {utilizationPercent: 100, latency: 31ms}]
  state: Draining
  rampUp: 1m30s
  metrics: {source: gpu-use1, selector: {job: maximal, pod: ""}}
---
kind: InferenceEngine
metadata: {name: maximal-urls, labels: {tier: maximal}}
spec:
  models: [{name: maximal}]
  endpoints: {urls: ["http://b.example:8000"], replicasFrom: Metrics}
  hardware: {accelerator: L40S}
  capacity: {perReplica: {requestsPerSecond: 2}}
---
kind: InferenceEngine
metadata: {name: minimal}
spec:
  models: [{name: minimal}]
  endpoints: {urls: ["http://c.example"]}
  capacity: {perReplica: {maxConcurrency: 1}}
---
kind: RoutingPolicy
metadata: {name: maximal}
spec:
  models: [{name: maximal, requires: [tools]}, {name: legal-lora}]
  engineSelector: {matchLabels: {tier: maximal}}
  mode: Shadow
  strategy: {type: Nearest}
  frontends:
  - name: fe-maximal
    location: {region: us-east-1, zone: us-east-1b, cluster: cpu-use1}
    residency: [us]
    demand:
      requestsPerSecond: 90500m
      inputTokens: 900
      outputTokens: 220
      models: [{name: maximal, percent: 80}, {name: legal-lora, percent: 20}]
      priorities: [{name: interactive, percent: 70}, {name: batch, percent: 30}]
    publish: {configMap: a-table, cluster: local, onDelete: Retain}
  - name: fe-minimal
    demand: {requestsPerSecond: 1}
  - name: fe-published
    publish: {configMap: another-table}
  network:
    roundTrip: [{from: us-east-1, to: eu-west-1, latency: 76ms}, {from: eu-west-1, to: us-east-1, latency: 80.5ms}]
    default: 150ms
    measured: true
  objective: {targetUtilizationPercent: 85, moveCost: 0.2s, deadbandPermille: 2}
  affinity: {keys: [{header: x-session-id}, {field: user}, {prefix: {}}], slack: 1.5s}
  protection:
    retry: {maxAttempts: 2, budget: {idlePercent: 10, saturatedPercent: 2, minPerSecond: 1}}
    shedding: {header: x-priority, priorities: [{name: interactive, value: 100}, {name: batch, value: 10}]}
  timeouts: {connect: 1s, firstByte: 2m, idle: 1m, send: 90s, unary: 5m}
  limits: {body: 16Mi, retryBody: 1048576}
  queue: {max: 0, deadline: 500ms}
  ejection: {consecutive: 7, base: 10s, max: 10m, maxPercent: 30, minHealthy: 2}
  paths: [/v1/rerank, /tokenize]
  staleness: {hold: 1m, degrade: 5m, widenAfter: 1h}
  publication: {maxShiftPercent: 20}
---
kind: RoutingPolicy
metadata: {name: minimal}
spec:
  models: [{name: minimal}]
  frontends: [{name: fe-only}]
"""


def manifests() -> list[dict[str, Any]]:
    """All of them, as plain data."""
    return [
        {"apiVersion": "headrace.dev/v1alpha1", **raw, "metadata": raw["metadata"] | {"namespace": NAMESPACE}}
        for raw in yaml.safe_load_all(_TEXT)
    ]


def text() -> str:
    """All of them, as YAML."""
    return yaml.safe_dump_all(manifests(), sort_keys=False)

"""Figures for Prometheus. Each application has a registry of its own, so that several can live in one process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from rayctsl.jobs.contracts import STATUSES

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
JOB_SECONDS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)


class ServiceMetrics:
    """Every figure of the service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        labels = ("route", "method", "code")  # the route's template: raw paths would be unbounded
        self.requests = Counter("rayctsl_http_requests", "Requests answered", labels, registry=registry)
        self.latency = Histogram(
            "rayctsl_http_request_duration_seconds", "Time to answer", ("route",), buckets=SECONDS, registry=registry
        )
        self.jobs = Gauge("rayctsl_finetune_jobs", "Jobs by status", ("status",), registry=registry)
        self.queue_depth = Gauge("rayctsl_finetune_queue_depth", "Jobs that wait", registry=registry)
        self.queue_limit = Gauge("rayctsl_finetune_queue_limit", "Jobs that may wait", registry=registry)
        self.dispatcher_up = Gauge("rayctsl_dispatcher_up", "1 in the process that moves the jobs", registry=registry)
        self.job_seconds = Histogram(
            "rayctsl_finetune_job_duration_seconds",
            "From start to end",
            ("status",),
            buckets=JOB_SECONDS,
            registry=registry,
        )
        self.downloaded = Counter("rayctsl_download_bytes", "Bytes of weights sent", registry=registry)
        self.ray_up = Gauge("rayctsl_ray_up", "1 when the cluster answers", registry=registry)
        self.streams = Gauge("rayctsl_event_streams", "Open event streams", registry=registry)

    def show_jobs(self, counts: dict[str, int]) -> None:
        for status in STATUSES:
            self.jobs.labels(status).set(counts.get(status, 0))
        self.queue_depth.set(counts.get("queued", 0))

    def render(self) -> bytes:
        return generate_latest(self.registry)

"""Write the Grafana dashboard of the monitoring component.

    python k8s/dashboard.py

A panel is a line below; the tests compare its metrics with the program's and the file with this table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

TARGET = Path(__file__).parent / "components" / "monitoring" / "dashboard.json"
WIDTH, HEIGHT, COLUMNS = 8, 8, 3  # of a panel, in Grafana's grid of 24


class Panel(NamedTuple):
    """One graph. Example: Panel("Jobs that wait", "short", "max(rayctsl_finetune_queue_depth)", "queued")"""

    title: str
    unit: str
    expression: str
    legend: str


RUNS = (
    Panel("Task loss", "short", "ray_rayctsl_task_loss{ray_io_cluster=~'$cluster'}", "{{task}}"),
    Panel(
        "Inner steps per second",
        "short",
        "ray_rayctsl_steps_per_second{ray_io_cluster=~'$cluster'}",
        "{{ray_io_cluster}}",
    ),
    Panel(
        "Learners computing", "percentunit", "ray_rayctsl_utilisation{ray_io_cluster=~'$cluster'}", "{{ray_io_cluster}}"
    ),
    Panel(
        "Learners waiting", "percentunit", "ray_rayctsl_stall_share{ray_io_cluster=~'$cluster'}", "{{ray_io_cluster}}"
    ),
    Panel(
        "Bytes handed over per step",
        "bytes",
        "ray_rayctsl_bytes_per_step{ray_io_cluster=~'$cluster'}",
        "{{ray_io_cluster}}",
    ),
    Panel(
        "Learners by state",
        "short",
        "sum by (State) (ray_actors{Source='gcs', Name=~'TaskLearner|MetaLearner', ray_io_cluster=~'$cluster'})",
        "{{State}}",
    ),
)
SERVICE = (
    Panel("Jobs by status", "short", "max by (status) (rayctsl_finetune_jobs)", "{{status}}"),
    Panel("Jobs that wait", "short", "max(rayctsl_finetune_queue_depth)", "queued"),
    Panel("Places in the queue", "short", "max(rayctsl_finetune_queue_limit)", "limit"),
    Panel("Dispatchers", "short", "sum(rayctsl_dispatcher_up)", "up"),
    Panel(
        "Time of a job (median)",
        "s",
        "histogram_quantile(0.5, sum by (le, status) (rate(rayctsl_finetune_job_duration_seconds_bucket[1h])))",
        "{{status}}",
    ),
    Panel("Requests per second", "reqps", "sum by (code) (rate(rayctsl_http_requests_total[5m]))", "{{code}}"),
    Panel(
        "Time to answer (95 %)",
        "s",
        "histogram_quantile(0.95, sum by (le, route) (rate(rayctsl_http_request_duration_seconds_bucket[5m])))",
        "{{route}}",
    ),
    Panel("Weights sent per second", "Bps", "sum(rate(rayctsl_download_bytes_total[5m]))", "sent"),
    Panel("Open event streams", "short", "sum(rayctsl_event_streams)", "open"),
    Panel("Ray answers", "short", "max(rayctsl_ray_up)", "up"),
)
NODES = (
    Panel("GPU", "percent", "ray_node_gpus_utilization{ray_io_cluster=~'$cluster'}", "{{instance}} {{GpuIndex}}"),
    Panel("Memory in use", "bytes", "ray_node_mem_used{ray_io_cluster=~'$cluster'}", "{{instance}}"),
    Panel("Disk free", "bytes", "ray_node_disk_free{ray_io_cluster=~'$cluster'}", "{{instance}}"),
)
ROWS = {"Runs": RUNS, "Service": SERVICE, "Nodes": NODES}


def graph(panel: Panel, number: int, x: int, y: int) -> dict[str, object]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [{"refId": "A", "expr": panel.expression, "legendFormat": panel.legend}],
    }


def panels() -> list[dict[str, object]]:
    """Every row's title line, then its graphs, three side by side."""
    placed: list[dict[str, object]] = []
    y = 0
    for title, row in ROWS.items():
        placed.append(
            {"id": len(placed) + 1, "type": "row", "title": title, "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}}
        )
        for index, panel in enumerate(row):
            x, down = index % COLUMNS * WIDTH, index // COLUMNS * HEIGHT
            placed.append(graph(panel, len(placed) + 1, x, y + 1 + down))
        y += 1 + -(-len(row) // COLUMNS) * HEIGHT
    return placed


def dashboard() -> str:
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    cluster = {
        "name": "cluster",
        "label": "Ray cluster",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "$datasource"},
        "query": "label_values(ray_actors, ray_io_cluster)",
        "includeAll": True,
        "multi": True,
        "refresh": 2,
    }
    content = {
        "uid": "rayctsl",
        "title": "rayctsl",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, cluster]},
        "panels": panels(),
    }
    return json.dumps(content, indent=2) + "\n"


if __name__ == "__main__":
    TARGET.write_text(dashboard())

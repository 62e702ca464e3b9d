"""Where each replayed rule of the operator stands: file and line of KubeRay's source at a commit.

Paths are below `ray-operator/controllers/ray` of https://github.com/ray-project/kuberay. A rule is a function of
`operator.py` or a sentence of `operator_rules.py`; for what is refused, the line is the one that says so. TAG is
v1.7.0, the version that README installs. Where a file's text at the tag was not at hand, the commit is an earlier one
that was: NEAR has features of v1.7.0 (and `GetHeadGroupServiceAccountName` at the tag's line, 578), JOBS, CLUSTERS and
RIGHTS are older. `test_k8s_sources.py` fails for a rule that has no line here.
"""

from __future__ import annotations

from typing import NamedTuple

TAG = "59d663aeec13760646da3db9c1cf8cfe883e30b7"
NEAR = "bc86bb721c92167f0d10e8deaeed4f56d1dd4305"
JOBS = "12cb11e48d1a375a19b771ec53c3b0023d189d4e"
CLUSTERS = "17883180e0f97799deb1fa745195714ad7ed8f80"
RIGHTS = "9541bb5e342a21ff0975cdba6253d54e95db45ac"


class Source(NamedTuple):
    """Example: Source("utils/util.go", 578, TAG)"""

    path: str
    line: int
    commit: str


def _at(path: str, commit: str, *lines: int) -> list[Source]:
    return [Source(path, line, commit) for line in lines]


POD, UTIL, CONSTANT, VALIDATION = "common/pod.go", "utils/util.go", "utils/constant.go", "utils/validation.go"
JOB, CLUSTER = "rayjob_controller.go", "raycluster_controller.go"

REPLAYED = {  # a function of operator.py
    "autoscales": _at(UTIL, NEAR, 751),
    "check_name": _at(UTIL, NEAR, 221),
    "head_account": [*_at(UTIL, TAG, 578), *_at(POD, NEAR, 260)],
    "operator_makes_account": _at(CLUSTER, TAG, 2226),
    "head_has_token": _at("common/rbac.go", RIGHTS, 13),
    "token_secret": _at(POD, NEAR, 392, 394),
    "token_variables": [*_at(POD, NEAR, 369), *_at(CONSTANT, NEAR, 179)],
    "autoscaler_container": _at(POD, NEAR, 262, 268, 747, 801, 816),
    "waiting_container": _at(POD, NEAR, 440, 477),
    "labels_of": [*_at(POD, NEAR, 870, 886, 1374), *_at(CONSTANT, NEAR, 306)],
    "ray_pods": _at(POD, NEAR, 225, 277, 529),
    "cluster_of_job": [*_at(JOB, JOBS, 850), *_at(UTIL, NEAR, 369)],
    "head_service": _at(UTIL, NEAR, 316),
    "submitter_pod": _at(JOB, JOBS, 559, 582, 605),
    "redis_cleanup_labels": _at(CLUSTER, CLUSTERS, 260),
    "node_resources": _at(POD, NEAR, 1079, 1139, 1334, 1351, 1355),
    "deployment_status": _at(JOB, JOBS, 324, 329),
    "is_retried": [*_at(JOB, TAG, 542), *_at(JOB, JOBS, 515, 516)],
    "is_suspended_by_apply": [*_at(JOB, TAG, 1043), *_at(JOB, JOBS, 975)],
    "health_check": _at(POD, NEAR, 539, 546),
}

REFUSED = {  # a sentence of operator_rules.py, as far as it is fixed
    "the name is too long": [*_at(VALIDATION, TAG, 34, 535), *_at(CONSTANT, NEAR, 326, 332)],
    "the name is no DNS-1035 label": _at(VALIDATION, TAG, 37, 538),
    "upgradeStrategy in a RayJob's cluster": _at(VALIDATION, TAG, 53),
    "resources both in rayStartParams and in resources": _at(VALIDATION, TAG, 66),
    "labels belong to the group, not to rayStartParams": _at(VALIDATION, TAG, 74),
    "a group without a container": _at(VALIDATION, TAG, 105, 120),
    "without autoscaling a group needs minReplicas and maxReplicas": _at(VALIDATION, TAG, 126),
    "minReplicas is negative or above maxReplicas": _at(VALIDATION, TAG, 129, 136),
    "idleTimeoutSeconds and priority of a group need autoscaler v2": _at(VALIDATION, TAG, 145, 148),
    "old annotations beside gcsFaultToleranceOptions": _at(VALIDATION, TAG, 154, 184),
    "the Redis address belongs to gcsFaultToleranceOptions": _at(VALIDATION, TAG, 160, 179),
    "the Redis password belongs to gcsFaultToleranceOptions": _at(VALIDATION, TAG, 169, 174),
    "the Redis user belongs to gcsFaultToleranceOptions": _at(VALIDATION, TAG, 193),
    "a suspended group with autoscaling": _at(VALIDATION, TAG, 218),
    "the autoscaler's version is said twice": _at(VALIDATION, TAG, 223),
    "autoscaler v2 wants restartPolicy Never": _at(VALIDATION, TAG, 228, 233),
    "idleTimeoutSeconds is negative": _at(VALIDATION, TAG, 243),
    " needs a feature gate that is off by default": _at(VALIDATION, TAG, 262, 317, 324),
    "token authentication needs rayVersion 2.52 or later": _at(VALIDATION, TAG, 297),
    "enableK8sTokenAuth beside secretName": _at(VALIDATION, TAG, 306),
    "storage is for the backend rocksdb": _at(VALIDATION, TAG, 371),
    "suspend needs a cluster of its own and shutdownAfterJobFinishes": _at(VALIDATION, TAG, 548, 562),
    "ttlSecondsAfterFinished is negative, or without shutdownAfterJobFinishes": _at(VALIDATION, TAG, 552, 754),
    "neither rayClusterSpec nor clusterSelector": _at(VALIDATION, TAG, 565),
    "backoffLimit is negative, or beside clusterSelector": _at(VALIDATION, TAG, 576, 626),
    "SidecarMode has no submitter pod": _at(VALIDATION, TAG, 593, 597),
    "enableK8sTokenAuth in a RayJob": _at(VALIDATION, TAG, 607),
    " must be positive": _at(VALIDATION, TAG, 620, 623),
    "shutdownAfterJobFinishes beside deletionRules": _at(VALIDATION, TAG, 772),
}

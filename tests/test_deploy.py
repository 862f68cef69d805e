"""What starts servers in deploy/: valid, and in step with the server that it starts."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from corral.providers.base.config import RunConfig, ServerSettings, substitute
from corral.providers.stack.host import check_shared
from corral.server.app import ROUTES

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="no schemas of Kubernetes")
helm = pytest.importorskip("helm_python", reason="no Helm for this platform")

ROOT = Path(__file__).parent.parent
CHART = ROOT / "deploy" / "helm" / "corral"
UNIT = ROOT / "deploy" / "corral.service"
SECRETS = {
    "CORRAL_STATE_URL": "postgresql://user:the-secret@db/corral",
    "CORRAL_PGVECTOR_DSN": "postgresql://user:the-secret@db/vectors",
}

Manifest = dict[str, Any]


def rendered(**values: Any) -> dict[str, Manifest]:
    """Return the manifests of the chart by kind, with some values changed."""
    with helm.Chart.load(str(CHART)) as chart:
        texts = chart.render(values, name="corral", namespace="search")
    manifests = [yaml.safe_load(text) for name, text in texts.items() if name.endswith(".yaml")]
    return {one["kind"]: one for one in manifests}


def pod(manifests: dict[str, Manifest]) -> Manifest:
    """Return the specification of the pods."""
    spec: Manifest = manifests["Deployment"]["spec"]["template"]["spec"]
    return spec


def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    """`helm lint` has no error and no warning."""
    report = helm.lint(str(CHART))
    assert not re.search(r"\b(ERROR|WARNING)\b", str(report)), report


@pytest.mark.parametrize("version", ["1.28", "1.37"])
@pytest.mark.parametrize(
    "values",
    [
        {},
        {
            "replicas": 5,
            "imagePullSecrets": [{"name": "registry"}],
            "nodeSelector": {"disk": "fast"},
            "tolerations": [{"key": "only", "operator": "Exists"}],
        },
    ],
)
def test_manifests_match_the_schemas_of_kubernetes(values: dict[str, Any], version: str) -> None:
    """Every manifest is valid on the oldest and the newest version, without unknown keys."""
    manifests = rendered(**values)
    assert set(manifests) == {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service"}
    for manifest in manifests.values():
        kubernetes_validate.validate(manifest, version, strict=True)


def test_the_service_and_the_budget_select_the_pods() -> None:
    """Every selector matches the labels of the pods; of three replicas, one may be disrupted."""
    manifests = rendered()
    deployment = manifests["Deployment"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels
    assert manifests["Service"]["spec"]["selector"] == labels
    budget = manifests["PodDisruptionBudget"]["spec"]
    assert budget["selector"]["matchLabels"] == labels
    assert (deployment["replicas"], budget["maxUnavailable"]) == (3, 1)


def test_the_server_accepts_the_configuration() -> None:
    """run.yaml is valid, has secrets by reference only, and its change replaces the pods."""
    manifests = rendered()
    text = manifests["ConfigMap"]["data"]["run.yaml"]
    settings = substitute(yaml.safe_load(text), SECRETS)
    config = RunConfig.model_validate(settings)
    check_shared(config)
    assert config.shares_state
    assert config.files.url
    assert config.providers.vector_io[0].provider_type.startswith("remote::")
    assert "the-secret" not in str(manifests)
    [container] = pod(manifests)["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "corral"}}]
    annotation = manifests["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    server = {"drain_seconds": 5, "grace_seconds": 30}
    changed = rendered(config={"server": server})["Deployment"]["spec"]["template"]["metadata"]
    assert changed["annotations"] != annotation


def test_a_pod_has_time_to_drain() -> None:
    """Kubernetes waits longer than the server takes to stop, and asks it whether it is ready.

    If this fails: pods are killed in the middle of requests.
    """
    manifests = rendered(config={"server": {"drain_seconds": 20, "grace_seconds": 60}})
    assert pod(manifests)["terminationGracePeriodSeconds"] > 80
    [container] = pod(manifests)["containers"]
    paths = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness")}
    paths.add(container["readinessProbe"]["httpGet"]["path"])
    assert paths == {"/v1/health", "/v1/ready"}
    assert paths <= {route.path for route in ROUTES}


def test_the_pod_is_the_one_of_the_dockerfile() -> None:
    """User, port and data folder are the image's, and the pod can write nowhere else."""
    dockerfile = (ROOT / "Dockerfile").read_text("utf-8")
    spec = pod(rendered())
    [container] = spec["containers"]
    assert f"USER {spec['securityContext']['runAsUser']}\n" in dockerfile
    assert f"EXPOSE {container['ports'][0]['containerPort']}\n" in dockerfile
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert "CORRAL_HOME=/data" in dockerfile
    assert mounts == ["/data", "/tmp", "/data/run.yaml"]
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_systemd_gives_the_server_time_to_stop() -> None:
    """The unit is valid, and its stop takes longer than the settings' defaults together."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # typeshed fixes its signature
    unit.read(UNIT)
    defaults = ServerSettings()
    total = defaults.drain_seconds + defaults.grace_seconds
    assert int(unit["Service"]["TimeoutStopSec"]) > total
    assert unit["Service"]["ExecStart"].endswith("/corral serve")
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", str(UNIT)], capture_output=True, text=True, check=False
        )
        wrong = [line for line in done.stderr.splitlines() if "corral.service:" in line]
        assert [line for line in wrong if "is not executable" not in line] == []


COMPOSE = ROOT / "deploy" / "compose"


def test_compose_starts_two_replicas_that_share_everything() -> None:
    """Only the proxy has a port; every variable and file that the replicas need is there."""
    compose = yaml.safe_load((COMPOSE / "compose.yaml").read_text("utf-8"))["services"]
    replica = compose["corral"]
    assert replica["deploy"]["replicas"] == 2
    assert [name for name, service in compose.items() if "ports" in service] == ["proxy"]
    text = (COMPOSE / "run.yaml").read_text("utf-8")
    variables = {
        **dict.fromkeys(replica["environment"], "s3://bucket/files"),
        "CORRAL_STATE_URL": SECRETS["CORRAL_STATE_URL"],
    }
    settings = substitute(yaml.safe_load(text), variables)
    config = RunConfig.model_validate(settings)
    check_shared(config)
    assert config.shares_state
    assert config.providers.vector_io[0].provider_type.startswith("remote::")
    stop = int(replica["stop_grace_period"].removesuffix("s"))
    assert stop > config.server.drain_seconds + config.server.grace_seconds
    for service in compose.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (COMPOSE / source).is_file()


def test_the_proxy_asks_whether_a_replica_is_ready() -> None:
    """HAProxy asks /v1/ready more often than a replica takes to drain; its file is valid."""
    text = (COMPOSE / "haproxy.cfg").read_text("utf-8")
    drain = yaml.safe_load((COMPOSE / "run.yaml").read_text("utf-8"))["server"]["drain_seconds"]
    interval = re.search(r"check inter (\d+)s fall 1 ", text)
    assert interval is not None
    assert int(interval[1]) < drain
    assert "uri /v1/ready" in text
    if shutil.which("haproxy"):
        checked = subprocess.run(
            ["haproxy", "-c", "-f", str(COMPOSE / "haproxy.cfg")], capture_output=True, check=False
        )
        assert checked.returncode == 0, checked.stderr

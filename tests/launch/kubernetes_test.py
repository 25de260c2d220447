# SPDX-License-Identifier: Apache-2.0
"""slimps launch --on k8s: its manifests by the published schemas; the job that their commands form.

No cluster runs here. Network namespaces stand for pods, with the names that the manifests give.
"""

import contextlib
import os
import shlex
import subprocess
import sys

import commands
import kubernetes_validate
import pytest
import yaml
from commands import SLIMPS, Command
from kubeflow_trainer_api import models
from slimps_launch.identity import keys

sys.path.insert(0, os.path.join(commands.ROOT, "tools"))

from bench.cluster import net  # noqa: E402

VERSIONS = ("1.30.0", "1.34.0")
WHY_NOT = net.why_not()
TRAIN_FILE = os.path.join(commands.ROOT, "examples", "kvstore_numpy.py")

TRAIN = (*"python3 train.py --lr 0.1 yes".split(), "yes\n", "abc\n", "a b", "", 'a"\\', "\u2028😀")
# Kubernetes would put a variable in for the first, and "$" for the second.
DOLLARS = {"$(HOME)": "$$(HOME)", "a$$b$": "a$$$$b$$"}


def printed(*flags, command=(*TRAIN, *DOLLARS)):
    line = SLIMPS + ["launch", "--on", "k8s", "--workers=2", "--servers=2"]
    said = subprocess.run(
        line + ["--image=registry.example/train:1", "--name=digits", *flags, "--", *command],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    return list(yaml.safe_load_all(said))


def refused(*flags):
    with Command(SLIMPS + ["launch", "--on", "k8s", "--workers=2", "--servers=2", *flags]) as job:
        assert job.status() != 0
        return job.lines[-1]


def commands_of(manifests):
    """Returns (the command of the pods, the name of pod 0 and its Service)."""
    service, job = manifests[-2:]
    if job["kind"] == "TrainJob":
        return job["spec"]["trainer"]["command"], "digits-node-0-0.digits"
    container = job["spec"]["template"]["spec"]["containers"][0]
    pod = "%s-0" % job["metadata"]["name"]
    return container["command"], "%s.%s" % (pod, service["metadata"]["name"])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_and_its_service_follow_kubernetes_schema(version):
    secret, service, job = printed()
    assert (secret["kind"], service["kind"], job["kind"]) == ("Secret", "Service", "Job")
    for manifest in (secret, service, job):
        kubernetes_validate.validate(manifest, version, strict=True)
    template = job["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert template["spec"]["subdomain"] == service["metadata"]["name"]
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 4
    broken = {**job, "spec": {**job["spec"], "completionz": 4}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_a_train_job_and_its_runtime_follow_kubeflows_models():
    _, runtime, job = printed("--train-job")
    for manifest, model in (
        (runtime, models.TrainerV1alpha1TrainingRuntime),
        (job, models.TrainerV1alpha1TrainJob),
    ):
        # A field that the model does not know is lost on the way.
        assert model.from_dict(manifest).to_dict() == manifest
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    step = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]
    inner = {"apiVersion": "batch/v1", "kind": "Job", **step["template"]}
    kubernetes_validate.validate(inner, VERSIONS[0], strict=True)


def test_the_users_words_arrive_as_they_are():
    for flags in ((), ("--train-job",)):
        command, _ = commands_of(printed(*flags))
        assert command[command.index("--") :] == ["--", *TRAIN, *DOLLARS.values()]


def test_what_is_missing_is_told_in_one_line():
    assert "--on k8s: expected --image IMAGE" in refused("--", "true")
    assert "expected -- COMMAND at the end" in refused("--image=x")
    assert "--name A_b: expected lower-case letters" in refused(
        "--image=x", "--name=A_b", "--", "true"
    )
    assert "expected lower-case letters" in refused("--image=x", "--name=a\n", "--", "true")
    both = refused("--image=x", "--insecure", "--keys=k", "--", "true")
    assert "--keys and --insecure exclude each other" in both
    many = refused("--image=x", "--workers=4096", "--servers=4096", "--", "true")
    assert "room for the keys of 4096 nodes, got 8192: expected fewer" in many


def pod_of(manifests):
    """Returns the spec of the pods."""
    job = manifests[-1]
    if job["kind"] == "TrainJob":
        runtime = manifests[-2]["spec"]["template"]["spec"]
        job = runtime["replicatedJobs"][0]["template"]
    return job["spec"]["template"]["spec"]


def files_of_pod(manifests, index):
    """Returns {name: content} of the keys that a pod sees, as a kubelet mounts them."""
    secret, pod = manifests[0], pod_of(manifests)
    [volume], [container] = pod["volumes"], pod["containers"]
    [mount] = container["volumeMounts"]
    assert mount["name"] == volume["name"]
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]
    folder = mount["subPathExpr"].replace("$(JOB_COMPLETION_INDEX)", str(index)) + "/"
    return {
        item["path"][len(folder) :]: secret["stringData"][item["key"]]
        for item in volume["secret"]["items"]
        if item["path"].startswith(folder)
    }


@pytest.mark.parametrize("flags", [(), ("--train-job",)], ids=["job", "train_job"])
def test_each_pod_sees_the_keys_of_its_own_nodes_alone(flags):
    manifests = printed(*flags)
    names = [sorted(files_of_pod(manifests, index)) for index in range(4)]
    assert names == [
        ["allow", "scheduler.key", "server0.key"],
        ["allow", "server1.key"],
        ["allow", "worker0.key"],
        ["allow", "worker1.key"],
    ]
    again = printed(*flags)
    assert files_of_pod(manifests, 2) != files_of_pod(again, 2), "each job has keys of its own"


def test_keys_may_be_those_of_a_folder_or_none(tmp_path):
    folder = keys.make(str(tmp_path / "keys"), 2, 2)
    secret = printed("--keys", folder.path)[0]
    assert secret["stringData"]["worker1.key"] == folder.secret_file("worker1")
    manifests = printed("--insecure")
    assert [one["kind"] for one in manifests] == ["Service", "Job"]
    assert "volumes" not in pod_of(manifests)
    assert "--insecure" in commands_of(manifests)[0]


def test_checkpoints_are_in_a_folder_of_the_pods():
    command, _ = commands_of(printed("--checkpoint=/shared/run7", "--resume"))
    at = command.index("--checkpoint")
    assert command[at + 1 : at + 3] == ["/shared/run7", "--resume"]


@contextlib.contextmanager
def pods(tmp_path, flags, train):
    """Runs a job's commands in namespaces, which stand for its pods. Yields the commands."""
    manifests = printed(*flags, command=train)
    command, first_pod = commands_of(manifests)
    for index in range(4):
        (tmp_path / str(index)).mkdir()
        for name, content in files_of_pod(manifests, index).items():
            (tmp_path / str(index) / name).write_text(content)
    at = pod_of(manifests)["containers"][0]["volumeMounts"][0]["mountPath"]
    slimps = tmp_path / "slimps"
    slimps.write_text('#!/bin/sh\nexec %s "$@"\n' % shlex.join(SLIMPS))
    slimps.chmod(0o755)
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n10.77.0.1 %s\n" % first_pod)
    script = (
        "mount --bind {0}/hosts /etc/hosts && mount -t tmpfs tmpfs /run && mkdir -p {1} && "
        "mount --bind {0}/$JOB_COMPLETION_INDEX {1} && exec {2}"
    ).format(tmp_path, at, shlex.join(command))
    with net.Network(4, congestion="default") as network, contextlib.ExitStack() as running:
        yield [
            running.enter_context(
                Command(
                    network.command(index, ["sh", "-c", script]),
                    JOB_COMPLETION_INDEX=str(index),
                    KUBERNETES_SERVICE_HOST="10.77.0.254",
                    PATH="%s:%s" % (tmp_path, os.environ["PATH"]),
                )
            )
            for index in range(4)
        ]


@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
@pytest.mark.parametrize("flags", [(), ("--train-job",)], ids=["job", "train_job"])
def test_the_commands_form_a_job_in_namespaces(tmp_path, flags):
    with pods(tmp_path, flags, (commands.PYTHON, TRAIN_FILE)) as running:
        for pod in running:
            assert pod.status() == 0, pod.said
        assert commands.TRAINED in running[2].lines, running[2].said

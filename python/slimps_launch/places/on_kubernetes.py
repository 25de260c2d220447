# SPDX-License-Identifier: Apache-2.0
"""slimps launch --on k8s: prints manifests. Pure, but for the printing.

A headless Service gives each pod a name, and an Indexed Job starts the pods: with --train-job a
Kubeflow TrainJob does, on a TrainingRuntime of its own, which makes a JobSet. Each pod is a
`slimps run`, which takes its role from its index; pod 0 has the scheduler, too. A Secret has the
keys of the job's nodes; each pod sees those of its own nodes alone.
"""

import json
import re

from slimps_launch import errors
from slimps_launch import job_folders
from slimps_launch.identity import keys

PORT = 9091
KEYS = "slimps-keys"  # the name of a pod's volume
KEYS_AT = "/run/secrets/slimps"
MOST_NODES = 4096  # whose keys, some 210 bytes each, fit into a Secret of at most 1 MiB
NAME = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")


def add_flags(parser):
    group = parser.add_argument_group("--on k8s")
    group.add_argument("--image", help="the image of the pods, with slimps and the program in it")
    group.add_argument("--name", default="slimps", help="the job's name (default slimps)")
    group.add_argument(
        "--train-job", action="store_true", help="print a Kubeflow TrainJob, not a plain Job"
    )


def print_manifests(parser, options, command):
    if not command:
        parser.error("what shall the workers run? expected -- COMMAND at the end")
    if not options.image:
        parser.error("--on k8s: expected --image IMAGE, with slimps and the program in it")
    if not NAME.fullmatch(options.name):
        parser.error(
            "--name %s: expected lower-case letters, digits and dashes, from a letter on"
            % options.name
        )
    if options.insecure and options.keys:
        parser.error("--keys and --insecure exclude each other")
    make = train_job if options.train_job else plain_job
    manifests = make(options, command)
    if not options.insecure:
        manifests.insert(0, secret(options))
    print("# kubectl create -f FILE")
    if not options.insecure:
        print("# Keep it secret: it has the keys of the job's nodes.")
    for number, manifest in enumerate(manifests):
        if number:
            print("---")
        print(yaml(manifest))
    return 0


def secret(options):
    """Returns a Secret with new keys, or with those of a folder.

    LaunchError: the folder has not all; there are too many for a Secret.
    """
    nodes = options.workers + options.servers
    if nodes > MOST_NODES:
        raise errors.LaunchError(
            "--on k8s: a Secret has room for the keys of %d nodes, got %d: expected fewer, or "
            "--insecure" % (MOST_NODES, nodes)
        )
    with job_folders.folder("keys") as temporary:
        if options.keys:
            folder = keys.Folder(options.keys)
            folder.check(options.workers, options.servers)
        else:
            folder = keys.make(temporary, options.workers, options.servers)
        files = {
            name + ".key": folder.secret_file(name)
            for name in keys.node_names(options.workers, options.servers)
        }
        with open(folder.allow, encoding="ascii") as allow:
            files[keys.ALLOW] = allow.read()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": options.name + "-keys"},
        "type": "Opaque",
        "stringData": files,
    }


def key_volume(options):
    """Returns the volume of the Secret: a folder for each pod, with the files of its nodes."""
    items = []
    for pod in range(options.workers + options.servers):
        is_server = pod < options.servers
        own = ["server%d" % pod if is_server else "worker%d" % (pod - options.servers)]
        files = [name + ".key" for name in (["scheduler"] if pod == 0 else []) + own]
        for name in files + [keys.ALLOW]:
            items.append({"key": name, "path": "%d/%s" % (pod, name)})
    return {"name": KEYS, "secret": {"secretName": options.name + "-keys", "items": items}}


def run_line(options, first_pod, command):
    """Returns what each pod runs."""
    line = ["slimps", "run", "--workers", str(options.workers), "--servers", str(options.servers)]
    line += ["--scheduler", "%s:%d" % (first_pod, PORT)]
    line += ["--join_timeout_s", str(options.join_timeout_s), "--timeout_s", str(options.timeout_s)]
    line += ["--insecure"] if options.insecure else ["--mounted-keys", KEYS_AT]
    if options.checkpoint:
        line += ["--checkpoint", options.checkpoint]
    if options.resume:
        line += ["--resume"]
    if options.interface:
        line += ["--interface", options.interface]
    # Kubernetes puts variables in for $(NAME), and "$" for "$$".
    return line + ["--"] + [word.replace("$", "$$") for word in command]


def job_spec(options, container, labels, subdomain):
    pods = options.workers + options.servers
    pod = {"restartPolicy": "Never", "containers": [container]}
    if not options.insecure:
        # Kubernetes sets the variable in the pods of an Indexed Job.
        mount = {"name": KEYS, "mountPath": KEYS_AT, "subPathExpr": "$(JOB_COMPLETION_INDEX)"}
        container["volumeMounts"] = [{**mount, "readOnly": True}]
        pod["volumes"] = [key_volume(options)]
    if subdomain:
        pod["subdomain"] = subdomain
    return {
        "completions": pods,
        "parallelism": pods,
        "completionMode": "Indexed",
        "backoffLimit": 0,  # a job that lost a process ends
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }


def plain_job(options, command):
    """Returns a Service and a Job."""
    name = options.name
    labels = {"slimps-job": name}
    container = {
        "name": "slimps",
        "image": options.image,
        "command": run_line(options, "%s-0.%s" % (name, name), command),
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        # Pods look for pod 0 before anybody is ready.
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels},
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": job_spec(options, container, labels, name),
    }
    return [service, job]


def train_job(options, command):
    """Returns a TrainingRuntime and a TrainJob. Its JobSet brings the Service."""
    name = options.name
    pods = options.workers + options.servers
    # The runtime is complete but for the image and the command, which are the TrainJob's.
    step = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": job_spec(
                options, {"name": "node", "image": options.image}, {"slimps-job": name}, None
            ),
        },
    }
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": name},
        "spec": {
            "mlPolicy": {"numNodes": pods},
            "template": {
                "spec": {
                    "network": {"publishNotReadyAddresses": True},
                    "failurePolicy": {"maxRestarts": 0},
                    "replicatedJobs": [step],
                }
            },
        },
    }
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": "TrainingRuntime",
                "name": name,
            },
            "trainer": {
                "image": options.image,
                "numNodes": pods,
                "command": run_line(options, "%s-node-0-0.%s" % (name, name), command),
            },
        },
    }
    return [runtime, job]


# ---- YAML ----------------------------------------------------------------------------------------

PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
ODD = re.compile(r'[^ -~]|["\\]')  # not between quotes
NOT_TEXT = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def scalar(value):
    if not isinstance(value, str):
        return json.dumps(value)  # which is YAML, too
    if PLAIN.fullmatch(value) and value.lower() not in NOT_TEXT:
        return value
    return '"%s"' % ODD.sub(lambda found: "\\U%08x" % ord(found.group()), value)


def yaml(value, indent=""):
    """Returns a value of dicts, lists and scalars as YAML, without a line's end."""
    lines = []
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, (dict, list)) and inner:
                lines.append("%s%s:\n%s" % (indent, key, yaml(inner, indent + "  ")))
            else:
                lines.append("%s%s: %s" % (indent, key, scalar(inner)))
        return "\n".join(lines)
    for inner in value:
        if isinstance(inner, dict):
            lines.append("%s- %s" % (indent, yaml(inner, indent + "  ").lstrip()))
        else:
            lines.append("%s- %s" % (indent, scalar(inner)))
    return "\n".join(lines)

# SPDX-License-Identifier: Apache-2.0
"""slimps launch --on k8s: prints manifests. Pure, but for the printing.

A headless Service gives each pod a name, and an Indexed Job starts the pods: with --train-job a
Kubeflow TrainJob does, on a TrainingRuntime of its own, which makes a JobSet. Each pod is a
`slimps run`, which takes its role from its index; pod 0 has the scheduler, too.
"""

import json
import re

from slimps_launch import errors

PORT = 9091
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
    if options.keys:
        parser.error(
            "--keys goes with other places than k8s, which has no way to hand out keys yet"
        )
    if not options.insecure:
        raise errors.LaunchError(
            "--on k8s: pods reach each other over the cluster's network, and without keys traffic "
            "is not encrypted: give --insecure if that network is trusted"
        )
    make = train_job if options.train_job else plain_job
    for number, manifest in enumerate(make(options, command)):
        print("---" if number else "# kubectl apply -f FILE")
        print(yaml(manifest))
    return 0


def run_line(options, first_pod, command):
    """Returns what each pod runs."""
    line = ["slimps", "run", "--workers", str(options.workers), "--servers", str(options.servers)]
    line += ["--scheduler", "%s:%d" % (first_pod, PORT), "--insecure"]
    if options.interface:
        line += ["--interface", options.interface]
    # Kubernetes puts variables in for $(NAME), and "$" for "$$".
    return line + ["--"] + [word.replace("$", "$$") for word in command]


def job_spec(options, container, labels, subdomain):
    pods = options.workers + options.servers
    pod = {"restartPolicy": "Never", "containers": [container]}
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

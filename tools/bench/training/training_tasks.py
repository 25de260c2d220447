# SPDX-License-Identifier: Apache-2.0
"""What the training benches train, and the ways to exchange gradients that they compare. Pure."""

import collections
import re

# flags: of slimps_worker. seconds: of one run in fp32 on two cores, roughly. metric: the summary's
# key by which runs are compared.
Task = collections.namedtuple("Task", "name dataset flags seconds metric says")

ACCURACY, LOSS = "test_accuracy", "test_loss"
TASKS = {
    task.name: task
    for task in (
        Task(
            "mlp",
            "digits",
            "--epochs 12 --batch 32 --lr 0.1 --lr_schedule cosine",
            15,
            ACCURACY,
            "UCI digits, 12 epochs",
        ),
        Task(
            "lenet",
            "mnist",
            "--epochs 3 --batch 64 --lr 0.1 --lr_schedule cosine",
            60,
            ACCURACY,
            "MNIST, 3 epochs",
        ),
        Task(
            "lstm",
            "text",
            "--epochs 3 --batch 32 --optimizer adam --lr 0.002",
            240,
            LOSS,
            "tiny Shakespeare, 3 epochs, Adam",
        ),
        Task(
            "char_transformer",
            "text",
            "--epochs 3 --batch 32 --optimizer adam --lr 0.001",
            400,
            LOSS,
            "tiny Shakespeare, 3 epochs, Adam",
        ),
        Task(
            "resnet20",
            "cifar10",
            "--epochs 5 --batch 64 --optimizer momentum --lr 0.1 --lr_schedule one_cycle",
            1800,
            ACCURACY,
            "CIFAR-10, 5 epochs, momentum, one-cycle rate",
        ),
    )
}

# Names that stand for more than a codec's spec.
WAYS = {
    "fp32": "--compression none",
    "slimgc_1bit": "--compression 1bit --threshold 4096 --backup_model on",
    "slimgc_2bit": "--compression 2bit --threshold 4096 --backup_model on",
    # The warm-up is 15 % of the steps of lstm and char_transformer. Adam trains both.
    "onebit_adam": "--optimizer onebit_adam --freeze_after 110 --compression 1bit --threshold 0"
    " --pull_compression 1bit --pull_threshold 0",
}

POLICIES = (
    "accordion",
    "global_topk",
    "gravac",
    "joint",
    "kmeans",
    "lgreco",
    "lgreco_accordion",
    "uniform",
)


def flags_of_task(task):
    return ["--model", task.name, "--dataset", task.dataset] + task.flags.split()


def flags_of_way(name):
    """Returns the flags of a name of WAYS, of a policy's spec, or of a codec's.

    A codec then compresses all.
    """
    if name in WAYS:
        return WAYS[name].split()
    if is_policy(name):
        return ["--policy", name]
    return ["--compression", name, "--threshold", "0"]


def is_policy(name):
    return name.partition(":")[0] in POLICIES


def pull_flags_of_way(name):
    """Returns the flags by which pulls carry what pushes do; none for names of WAYS."""
    if name in WAYS:
        return []
    if is_policy(name):
        return ["--pull_compression", "policy"]
    return ["--pull_compression", name, "--pull_threshold", "0"]


def spec_list(text):
    """Returns the specs of a list with commas: qsgd:bits=4,norm=max,drive is two.

    A word OPTION=VALUE belongs to the spec before it.
    ValueError: a word is empty, or a spec is there twice.
    """
    specs = []
    for word in text.split(","):
        if re.match("[^:=]+=", word) and specs and ":" in specs[-1]:
            specs[-1] += "," + word
        else:
            specs.append(word)
    for spec in specs:
        if not spec:
            raise ValueError("expected names with commas between them, got \"%s\"" % text)
        if specs.count(spec) > 1:
            raise ValueError("\"%s\" is there twice: %s" % (spec, text))
    return specs


def higher_is_better(task):
    return task.metric == ACCURACY

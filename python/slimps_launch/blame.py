# SPDX-License-Identifier: Apache-2.0
"""Who made a job fail, and what is said of it. Pure, but for the lines that it says."""

import re

from slimps_launch import job_node
from slimps_launch import job_output

# The scheduler's words for the node whose failure ended a job.
BLAMED = re.compile(r"(worker|server) (\d+) \(host [^)]*\)(?! listens at| is there| has closed)")
# What daemons and workers say if somebody has ended the job by a signal to the scheduler.
STOPPED = "the scheduler was stopped by "
# What a daemon says that ends because the job has ended, whoever is to blame.
OVER = re.compile(STOPPED + "|the job is over")


def blamed(nodes, failed):
    """Returns the one of `nodes` that failed nodes blame, and their line; or (None, None)."""
    lines = {
        role + rank: line
        for node in failed
        for line in list(node.last_lines)
        for role, rank in BLAMED.findall(line)
    }
    named = next((node for node in nodes if node.name in lines), None)
    return named, named and lines[named.name]


def is_over(node):
    """True if a node that failed says that the job has ended before it."""
    return any(OVER.search(line) for line in list(node.last_lines))


def was_stopped(nodes):
    """True if one of the nodes says that somebody has stopped the scheduler."""
    return any(STOPPED in line for node in nodes for line in list(node.last_lines))


class Report:
    """Says why a job failed, through `say`. `output` knows which lines were shown already."""

    def __init__(self, nodes, output, say, verbose):
        self.nodes = nodes
        self.output = output
        self.say = say
        self.verbose = verbose

    def _culprit(self, failed):
        """Returns the node that caused it; None: it is one from whose machine nothing came."""
        # The cause is a process that a signal killed, if there is one, or else the process that the
        # others blame.
        named, _ = blamed(self.nodes, failed)
        if named is not None and named.status is None:
            return None
        return min(failed, key=lambda node: self._guilt(node, named))

    @staticmethod
    def _guilt(node, named):
        ended_after = is_over(node) or node.status == 0
        return (node.stopped, node.status >= 0, node is not named, ended_after)

    def why(self, failed):
        """Returns in one line which process failed, and its error."""
        culprit = self._culprit(failed)
        if culprit is None:
            named, line = blamed(self.nodes, failed)
            return "%s on %s is lost: %s" % (named.name, named.where, line)
        lines = list(culprit.last_lines)
        at = None if culprit.status < 0 else job_output.last_error(lines)
        return "%s %s%s%s" % (
            culprit.name,
            culprit.describe_end(),
            " while workers were running" if culprit.status == 0 else "",
            "; it printed nothing" if not lines else "" if at is None else ": " + lines[at],
        )

    def of(self, failed):
        """Says which process failed, and returns the exit status.

        Its error comes first, then its last lines that were not shown yet, then which processes
        ended with it.
        """
        self.say("slimps: the job failed: " + self.why(failed))
        culprit = self._culprit(failed)
        if culprit is None:
            guilty = min(failed, key=lambda node: self._guilt(node, None))
            return job_node.exit_status(guilty.status) or 1
        lines = list(culprit.last_lines)
        at = None if culprit.status < 0 else job_output.last_error(lines)
        unseen = self.output.unseen(culprit)
        for number, line in enumerate(lines):
            if number != at and number >= len(lines) - len(unseen):
                self.say("  %s| %s" % (culprit.name, line))
        self._others(
            culprit,
            None if at is None else lines[at],
            [node for node in failed if node is not culprit],
        )
        return job_node.exit_status(culprit.status) or 1

    def _others(self, culprit, error, failed):
        """Says which processes ended with the culprit, in one line.

        A process with another reason gets a line of its own.
        """
        followers = []
        for node in failed:
            lines = list(node.last_lines)
            at = job_output.last_error(lines)
            repeats = (
                at is None
                or blamed(self.nodes, [node])[0] is culprit
                or (error is not None and job_output.words_of(error) in lines[at])
            )
            if repeats and (node.status >= 0 or node.stopped):
                followers.append(node.name)
            else:
                self.say(
                    "slimps: %s then %s%s"
                    % (node.name, node.describe_end(), "" if at is None else ": " + lines[at])
                )
        if followers:
            self.say(
                "slimps: with it ended %s%s"
                % (
                    ", ".join(sorted(followers)),
                    "" if self.verbose else " (--verbose shows what they said)",
                )
            )

# SPDX-License-Identifier: Apache-2.0
"""Where `slimps bench storm` runs its jobs: each server and each worker in a network namespace of
its own, the scheduler and the launcher in the one that has the bridge between them.

    with StormNetwork(6, "1gbit", folder) as network:
        subprocess.Popen(network.command(["tools/slimps", "launch", *network.flags(), ...]),
                         env=network.environment())
        network.cut(network.node_of(pid))
"""

import os

from bench.cluster import net

# Stands in for ssh: %s is the launcher's address, which the agent learns as it would from sshd. The
# last words are the host, which is a namespace, and the command.
ENTER = (
    "sh -c 'shift $(($# - 2)); exec ip netns exec \"$1\" sh -c "
    '"export SSH_CONNECTION=\\"%s 0 \\$(hostname -I) 0\\"; $2"\' ssh'
)


class StormNetwork:
    """A context manager. SetupError: namespaces cannot be made."""

    def __init__(self, nodes, link, folder):
        self.network = net.Network(nodes, congestion="default")
        self.link = link  # a rate, or None: the links are unshaped
        self.hosts = os.path.join(folder, "hosts")

    def __enter__(self):
        self.network.__enter__()
        try:
            if self.link is not None:
                self.network.shape(self.link)
            with open(self.hosts, "w", encoding="ascii") as out:
                for node in range(self.network.nodes):
                    out.write("%s slots=1\n" % self.network.name(node))
        except BaseException:
            self.network.remove()
            raise
        return self

    def __exit__(self, *unused):
        self.network.remove()

    def command(self, command):
        return self.network.command(net.HUB, command)

    def flags(self):
        """Returns launch's flags."""
        return ["--on", "ssh:" + self.hosts]

    def environment(self):
        return {**os.environ, "SLIMPS_SSH": ENTER % self.network.address(net.HUB)}

    def node_of(self, pid):
        """Returns the number of the process's namespace; None: it has ended."""
        name = net.run(["ip", "netns", "identify", str(pid)], check=False).strip()
        nodes = {self.network.name(node): node for node in range(self.network.nodes)}
        return nodes.get(name)

    def cut(self, node):
        """Pulls the node's cable."""
        self.network.set_link(node, "down")

    def mend(self, node):
        self.network.set_link(node, "up")

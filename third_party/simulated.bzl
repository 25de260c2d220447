# SPDX-License-Identifier: Apache-2.0
"""Programs whose threads, clock and randomness are simulated: proto/base/simulation/simulation.h.

    simulated_binary(name = "slimps_simulate", program = ":simulate")     # as --config=sim builds it
"""

def _flag(_):
    return []

simulated_flag = rule(implementation = _flag, build_setting = config.bool(flag = True))

def _transition(_settings, _attr):
    return {"//third_party:simulated": True}

_simulated = transition(
    implementation = _transition,
    inputs = [],
    outputs = ["//third_party:simulated"],
)

def _binary(ctx):
    out = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(
        output = out,
        target_file = ctx.attr.program[0][DefaultInfo].files_to_run.executable,
        is_executable = True,
    )
    return DefaultInfo(executable = out, files = depset([out]))

simulated_binary = rule(
    implementation = _binary,
    executable = True,
    attrs = {
        "program": attr.label(cfg = _simulated, mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
)

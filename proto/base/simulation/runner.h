// SPDX-License-Identifier: Apache-2.0
// What else those who run a simulation want of it. In programs of --config=sim alone.
#ifndef SLIMPS_PROTO_BASE_SIMULATION_RUNNER_H_
#define SLIMPS_PROTO_BASE_SIMULATION_RUNNER_H_

#include <functional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace slimps::simulation {

// Passes each Note of the run to `observer`, which has no choice points. To be called in the run.
void ObserveNotes(std::function<void(absl::string_view)> observer);

// Stops the node of this thread at its next choice point until a time, as SIGSTOP does. Another
// node's mutex must not be held there.
void StopThisNode(absl::Duration until);

// Takes CrashThisNode back.
void SpareThisNode();

}  // namespace slimps::simulation

#endif  // SLIMPS_PROTO_BASE_SIMULATION_RUNNER_H_

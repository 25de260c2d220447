// SPDX-License-Identifier: Apache-2.0
// Says in one sentence what to change, where the figures say so. Pure.
#ifndef SLIMPS_SCHEDULER_WATCH_ADVICE_H_
#define SLIMPS_SCHEDULER_WATCH_ADVICE_H_

#include <string>

#include "scheduler/watch/figures.h"

namespace slimps {

// Returns "" where the figures say nothing. Most gain first:
// - raw pulls fill the link, and training waits for it;
// - one server has far more to do than the others;
// - encoding takes longer than sending, and training waits for it;
// - rounds often wait for one worker alone.
std::string AdviceFor(const Figures& figures);

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_WATCH_ADVICE_H_

// SPDX-License-Identifier: Apache-2.0
// The command line of slimps_worker (worker_main.cc).
#ifndef SLIMPS_WORKER_WORKER_ARGUMENTS_H_
#define SLIMPS_WORKER_WORKER_ARGUMENTS_H_

namespace slimps {

// Sets the program's gflags from "--name=value" and "--name value". Wrong usage, --help and
// --version end the process. Only the main thread calls it.
void ParseWorkerArguments(int argc, char** argv);

}  // namespace slimps

#endif  // SLIMPS_WORKER_WORKER_ARGUMENTS_H_

// SPDX-License-Identifier: Apache-2.0
// Runs simulated jobs, one process for each seed. `tools/slimps simulate` calls it.
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <cstdio>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/base/simulation/mutant.h"
#include "tests/simulation/simulated_job.h"

DEFINE_uint64(seed, 1, "");
DEFINE_uint32(workers, 4, "");
DEFINE_uint32(servers, 2, "");
DEFINE_bool(trace, false, "");
DEFINE_string(mutant, "none", "");
DEFINE_bool(list_mutants, false, "");
DEFINE_string(folder, "", "");

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  if (FLAGS_list_mutants) {
    for (const absl::string_view name : slimps::simulation::MutantNames()) {
      std::puts(std::string(name).c_str());
    }
    return 0;
  }
  const auto mutant = slimps::simulation::MutantNamed(FLAGS_mutant);
  if (!mutant.has_value() && FLAGS_mutant != "none") {
    std::fprintf(stderr, "--mutant: expected one of --list_mutants, got \"%s\"\n",
                 FLAGS_mutant.c_str());
    return 2;
  }
  slimps::simulation::SetMutant(mutant.value_or(slimps::Mutant::kNone));
  const slimps::JobResult result = slimps::RunSimulatedJob({.seed = FLAGS_seed,
                                                            .workers = FLAGS_workers,
                                                            .servers = FLAGS_servers,
                                                            .trace = FLAGS_trace,
                                                            .folder = FLAGS_folder});
  std::printf("%s: %lu steps, %s, hash %016lx\n", result.setting.c_str(),
              static_cast<unsigned long>(result.outcome.steps),
              absl::FormatDuration(result.outcome.took).c_str(),
              static_cast<unsigned long>(result.outcome.trace_hash));
  std::fputs(result.faults.c_str(), stdout);
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A subject runs what is measured, and the reference that it is compared with.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto subject, MakeSubject(c, team, data));
//   for (...) {
//     subject->Settle();
//     time { subject->Run() ... }
//     time { subject->RunReference() ... }
//   }
#ifndef SLIMPS_TOOLS_BENCH_CODEC_SUBJECTS_H_
#define SLIMPS_TOOLS_BENCH_CODEC_SUBJECTS_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/codec/bench_data.h"
#include "tools/bench/codec/cases.h"
#include "tools/bench/codec/team.h"

namespace slimps {

// Thread-compatible. Uses the shared data, so only one subject may be in use at a time.
class Subject {
 public:
  virtual ~Subject() = default;

  // Runs the operation once.
  [[nodiscard]] virtual absl::Status Run() = 0;

  // Keeps the data as they are in training. Called before each series of runs, and not timed.
  virtual void Settle() {}

  // Runs the reference once.
  virtual void RunReference() = 0;

  // The fp32 gradient bytes that one Run counts for.
  virtual size_t gradient_bytes() const = 0;

  // The fp32 bytes that one RunReference counts for.
  virtual size_t reference_bytes() const = 0;

  virtual size_t payload_bytes() const = 0;  // one worker's
  virtual double sent_fraction() const = 0;  // fraction of one worker's elements
};

// REQUIRES: `team` has c.threads threads; `team` and `data` outlive the subject.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Subject>> MakeSubject(const Case& c, const Team& team,
                                                                   BenchData& data);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_CODEC_SUBJECTS_H_

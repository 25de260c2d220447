// One thing that is measured, and what it is compared with.
//
//   auto subject = MakeSubject(c, team, data);
//   for (...) { subject->Settle(); time { subject->Run() ... }  time { subject->RunReference() ... } }
#ifndef SLIMPS_TOOLS_BENCH_SUBJECTS_H_
#define SLIMPS_TOOLS_BENCH_SUBJECTS_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/bench/bench_data.h"
#include "tools/bench/cases.h"
#include "tools/bench/team.h"

namespace slimps {

// Thread-compatible; uses the shared data, so only one is in use at a time.
class Subject {
 public:
  virtual ~Subject() = default;
  // The operation once.
  [[nodiscard]] virtual absl::Status Run() = 0;
  // Not timed, before each series of runs: keeps data such as they are in training.
  virtual void Settle() {}
  virtual void RunReference() = 0;
  // fp32 gradient bytes that one Run and one RunReference count for.
  virtual size_t gradient_bytes() const = 0;
  virtual size_t reference_bytes() const = 0;
  virtual size_t payload_bytes() const = 0;  // of one worker
  virtual double sent_fraction() const = 0;  // of its elements
};

// `team` has c.threads threads; both and `data` outlive the subject.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Subject>> MakeSubject(const Case& c, const Team& team,
                                                                   BenchData& data);

}  // namespace slimps

#endif  // SLIMPS_TOOLS_BENCH_SUBJECTS_H_

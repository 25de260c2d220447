// SPDX-License-Identifier: Apache-2.0
// GradientChecks: makes fp32 of halves and looks for the largest magnitude in gradients that have
// arrived, several at a time on threads of its own, so that the thread that completes copies reads
// none of them. Reports come one at a time and in the order of arrival, whatever the threads do. So
// the first of two errors is always the same.
//
//   GradientChecks checks(/*threads=*/4, largest);
//   GradientChecks::Node gradient;   // made before the copy begins
//   gradient.push_back({.key = key, .values = grad_buf, .done = done});
//   ... the copy has ended ...
//   gradient.front().arrived = status;
//   checks.Add(&gradient);
//
// Thread-safe.
#ifndef SLIMPS_WORKER_DEVICE_GRADIENT_CHECKS_H_
#define SLIMPS_WORKER_DEVICE_GRADIENT_CHECKS_H_

#include <functional>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/mutex.h"
#include "proto/base/thread.h"
#include "worker/device/device.h"

namespace slimps {

class GradientChecks final {
 public:
  // Makes fp32 of a gradient, if it is of halves, which are the last bytes of `values`, and returns
  // its largest magnitude; infinity if a value is infinite or NaN.
  using Largest = std::function<float(std::span<float> values, ElementType type)>;

  struct Gradient {
    KeyId key = 0;
    absl::Status arrived;     // an error is reported in its turn, and `values` are not read
    std::span<float> values;  // live until `done` runs
    ElementType type = ElementType::kFloat32;
    GradientDone done;                             // runs on a thread of the checks
    std::optional<absl::StatusOr<float>> largest;  // the checks' own: set once it is known
  };
  // A list of one gradient. Add moves it, so Add allocates nothing.
  using Node = std::list<Gradient>;

  GradientChecks(int threads, Largest largest);

  // Reports what was added, then joins the threads.
  ~GradientChecks();

  // Moves the node's gradient behind those that were added before.
  void Add(Node* node);

 private:
  void Run();
  // Waits for a gradient to check. Returns null when the object ends and there is none.
  Gradient* AwaitNext();
  // Says what a check has found. Returns true if the caller has to report.
  bool NoteChecked(Gradient* gradient, absl::StatusOr<float> largest);
  // Moves out the first gradient if it is checked. Else this thread stops reporting.
  Node TakeChecked();

  const Largest largest_;
  Mutex mutex_;
  CondVar changed_;
  std::list<Gradient> gradients_ ABSL_GUARDED_BY(mutex_);  // those that are not reported
  std::list<Gradient>::iterator next_ ABSL_GUARDED_BY(mutex_) = gradients_.end();  // to be checked
  bool reporting_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;  // the last member, since they use all others
};

}  // namespace slimps

#endif  // SLIMPS_WORKER_DEVICE_GRADIENT_CHECKS_H_

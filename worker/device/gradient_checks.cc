// SPDX-License-Identifier: Apache-2.0
#include "worker/device/gradient_checks.h"

#include <iterator>
#include <utility>

namespace slimps {

GradientChecks::GradientChecks(int threads, Largest largest) : largest_(std::move(largest)) {
  while (static_cast<int>(threads_.size()) < threads) {
    threads_.emplace_back("cuda-checks", [this] { Run(); });
  }
}

GradientChecks::~GradientChecks() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (Thread& thread : threads_) thread.Join();
}

void GradientChecks::Add(Node* node) {
  MutexLock lock(&mutex_);
  const auto added = node->begin();
  gradients_.splice(gradients_.end(), *node);
  if (next_ == gradients_.end()) next_ = added;
  changed_.NotifyAll();
}

void GradientChecks::Run() {
  while (Gradient* const gradient = AwaitNext()) {
    absl::StatusOr<float> largest = 0.0f;
    if (gradient->arrived.ok()) {
      largest = largest_(gradient->values, gradient->type);
    } else {
      largest = gradient->arrived;
    }
    if (!NoteChecked(gradient, std::move(largest))) continue;
    for (Node first = TakeChecked(); !first.empty(); first = TakeChecked()) {
      first.front().done(first.front().key, *std::move(first.front().largest));
      first.clear();  // what `done` holds may report, too: in its turn
    }
  }
}

GradientChecks::Gradient* GradientChecks::AwaitNext() {
  MutexLock lock(&mutex_);
  while (next_ == gradients_.end() && !stopping_) changed_.Wait(&mutex_);
  return next_ == gradients_.end() ? nullptr : &*next_++;
}

bool GradientChecks::NoteChecked(Gradient* gradient, absl::StatusOr<float> largest) {
  MutexLock lock(&mutex_);
  gradient->largest = std::move(largest);
  return !std::exchange(reporting_, true);
}

GradientChecks::Node GradientChecks::TakeChecked() {
  MutexLock lock(&mutex_);
  Node first;
  if (!gradients_.empty() && gradients_.front().largest.has_value()) {
    first.splice(first.begin(), gradients_, gradients_.begin());
  }
  reporting_ = !first.empty();
  return first;
}

}  // namespace slimps

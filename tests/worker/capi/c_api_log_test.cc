// SPDX-License-Identifier: Apache-2.0
// slimps_log_to_stderr over a glog of the test's own, which is slow to say whether it is set up.
#include <gtest/gtest.h>

#include <thread>

#include "proto/base/mutex.h"
#include "worker/capi/c_api.h"

namespace {

slimps::Mutex mutex;
slimps::CondVar changed;
int asked ABSL_GUARDED_BY(mutex) = 0;
int set_up ABSL_GUARDED_BY(mutex) = 0;

}  // namespace

// The program's functions take the place of the shared library's.
namespace google {

bool IsGoogleLoggingInitialized() {
  slimps::MutexLock lock(&mutex);
  const bool is_set_up = set_up > 0;
  ++asked;
  changed.NotifyAll();
  // Another thread, if any may ask meanwhile, asks before this one sets glog up.
  (void)changed.Await(&mutex, absl::Milliseconds(200), [] { return asked == 2; });
  return is_set_up;
}

void InitGoogleLogging(const char*) {
  slimps::MutexLock lock(&mutex);
  ++set_up;
}

}  // namespace google

namespace {

TEST(CApiLog, ThreadsAtOnceSetGlogUpOnce) {
  slimps_status first = SLIMPS_UNKNOWN, second = SLIMPS_UNKNOWN;
  std::thread other([&] { second = slimps_log_to_stderr(); });
  first = slimps_log_to_stderr();
  other.join();
  EXPECT_EQ(first, SLIMPS_OK);
  EXPECT_EQ(second, SLIMPS_OK);
  slimps::MutexLock lock(&mutex);
  EXPECT_EQ(set_up, 1);
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Tells ThreadSanitizer what not to report in tests that hand absl::Status from thread to thread.
// Debian's libabsl is not built for ThreadSanitizer. If it drops one reference of a Status and our
// code drops the last, the tool sees no order between the two and reports a race.
extern "C" const char* __tsan_default_suppressions() {
  return "race:absl::*::Status::Unref\n"
         "race:absl::*::Status::UnrefNonInlined\n";
}

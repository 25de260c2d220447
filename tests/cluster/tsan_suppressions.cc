// What ThreadSanitizer is told not to report in tests that hand absl::Status from thread to thread. Debian's libabsl is not
// built for ThreadSanitizer: where it drops a reference of a Status whose last one is dropped by our code, the tool sees
// no order between the two, and takes freeing it for a race.
extern "C" const char* __tsan_default_suppressions() {
  return "race:absl::*::Status::Unref\n"
         "race:absl::*::Status::UnrefNonInlined\n";
}

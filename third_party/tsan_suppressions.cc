// SPDX-License-Identifier: Apache-2.0
// Tells ThreadSanitizer what not to report. Debian's libraries are not built for it, so it does not
// see how they order threads.
extern "C" const char* __tsan_default_suppressions() {
  return
      // libzmq hands messages from thread to thread through its own lock-free queues: a buffer that
      // we fill and its I/O thread sends or frees, or one that it fills and we read. The first line
      // covers memcpy, free and the like called by libzmq; the second, those of its decryption.
      "called_from_lib:libzmq.so\n"
      "called_from_lib:libsodium.so\n"
      "race:libzmq.so\n"
      // The library may drop one reference of a Status and our code the last.
      "race:absl::*::Status::Unref\n"
      "race:absl::*::Status::UnrefNonInlined\n"
      // TBB hands parts of a loop from thread to thread. So nothing that such a part does is looked
      // at: tests compare its results with those of one thread.
      "race:libtbb.so\n";
}

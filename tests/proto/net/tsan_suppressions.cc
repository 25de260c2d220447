// SPDX-License-Identifier: Apache-2.0
// Tells ThreadSanitizer what not to report in tests that use ZeroMQ. Tests over the in-process
// transport do not link this file. Debian's libzmq is not built for ThreadSanitizer. It hands
// messages from thread to thread through its own lock-free queues, whose ordering the tool cannot
// see. So two things look like races: a buffer that we fill and that libzmq's I/O thread later
// sends or frees, and a buffer that libzmq fills and we read.
extern "C" const char* __tsan_default_suppressions() {
  // The first line covers memcpy, free and the like called by libzmq. The second line covers races
  // with libzmq in either stack, such as our free callback run by its I/O thread.
  return "called_from_lib:libzmq.so\n"
         "race:libzmq.so\n";
}

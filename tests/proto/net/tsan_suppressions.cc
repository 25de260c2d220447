// What ThreadSanitizer is told not to report in tests that use ZeroMQ; tests over the in-process transport link none of
// this. Debian's libzmq is not built for ThreadSanitizer: it hands messages from thread to thread through lock-free
// queues of its own, whose ordering the tool cannot see. So a buffer that we fill, and libzmq's I/O thread sends or
// frees later, looks like a race, as does one that it fills and we read.
extern "C" const char* __tsan_default_suppressions() {
  // The first: memcpy, free and the like called by libzmq. The second: a race with libzmq in either stack, such as
  // our free callback run by its I/O thread.
  return "called_from_lib:libzmq.so\n"
         "race:libzmq.so\n";
}

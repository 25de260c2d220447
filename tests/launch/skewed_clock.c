/* SPDX-License-Identifier: Apache-2.0 */
/* For LD_PRELOAD: the process's wall clock is five minutes ahead of the machine's. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec* now) {
  const int status = (int)syscall(SYS_clock_gettime, id, now);
  if (status == 0 && id == CLOCK_REALTIME) now->tv_sec += 300;
  return status;
}

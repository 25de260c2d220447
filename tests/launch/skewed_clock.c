/* SPDX-License-Identifier: Apache-2.0 */
/* For LD_PRELOAD: in a job the wall clock of worker 1 is five minutes ahead of the machine's, and
   those of servers are 200 s behind. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static time_t ahead = 0;

__attribute__((constructor)) static void ReadRole(void) {
  const char* const role = getenv("DMLC_ROLE");
  const char* const worker = getenv("DMLC_WORKER_ID");
  if (role == NULL) return;
  if (strcmp(role, "server") == 0) ahead = -200;
  if (strcmp(role, "worker") == 0 && worker != NULL && strcmp(worker, "1") == 0) ahead = 300;
}

int clock_gettime(clockid_t id, struct timespec* now) {
  const int status = (int)syscall(SYS_clock_gettime, id, now);
  if (status == 0 && id == CLOCK_REALTIME) now->tv_sec += ahead;
  return status;
}

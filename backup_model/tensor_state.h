// SPDX-License-Identifier: Apache-2.0
// Decides who may touch one tensor's glo_buf and loc_buf, and when: the status flag of SlimGC
// section 3.6 as a pure state machine. Owned by BackupModel. An event is either accepted and
// changes the state, or refused and changes nothing.
//
// loc_buf (the flag in brackets; merge and update come in pairs, one pair per iteration i):
//
//            AcquireRead(i)           ReleaseRead (the last reader)
//   [1] unread ---------> [1] being read ---------> [1] released
//     w_loc(i)  ^             ^    | AcquireRead(i)      |   | MergeGlobal(i-1), when version i-1
//               |             +----+                     |   | has arrived in glo_buf
//               |             +--------------------------+   v
//               +-------------------------------------- [0] fresh: w_i, which is version i-1
//                  LocalUpdate(i): w_loc(i+1)
//
// glo_buf:
//             BeginGlobal(v+1)            GlobalArrived(v+1)
//   merged(v) ---------------> writing(v+1) ---------------> held(v+1)
//       ^                                                       | MergeGlobal(v+1)
//       +-------------------------------------------------------+
//
// The machine begins as [1] unread with w_loc(1) = version 0, and held(0). Version v+1 cannot even
// be ordered before v is merged. Version v = i-1 is merged only after iteration i has read its
// weights. So the lag is exactly one round.
#ifndef SLIMPS_BACKUP_MODEL_TENSOR_STATE_H_
#define SLIMPS_BACKUP_MODEL_TENSOR_STATE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace slimps {

enum class TensorEvent {
  kBeginGlobal,
  kGlobalArrived,
  kMergeGlobal,
  kLocalUpdate,
  kAcquireRead,
  kReleaseRead,
};
std::string_view TensorEventName(TensorEvent event);

// The status flag of loc_buf.
enum class LocStatus { kFresh = 0, kUpdated = 1 };

// Thread-compatible.
class TensorState final {
 public:
  explicit TensorState(std::string name) : name_(std::move(name)) {}

  // Begins as after iteration `version` of an earlier run: [1] unread with w_loc(version + 1), and
  // held(version). REQUIRES: no event came.
  void ResumeAt(int64_t version) {
    global_version_ = version;
    iteration_ = version + 1;
  }

  // Accept an event, or refuse it.
  // FailedPrecondition: it is not this event's turn (names the tensor, the state and what was
  // expected).
  [[nodiscard]] absl::Status BeginGlobal(int64_t version);
  [[nodiscard]] absl::Status GlobalArrived(int64_t version);
  [[nodiscard]] absl::Status MergeGlobal(int64_t version);
  [[nodiscard]] absl::Status LocalUpdate(int64_t iteration);
  [[nodiscard]] absl::Status AcquireRead(int64_t iteration);
  [[nodiscard]] absl::Status ReleaseRead();

  LocStatus status() const { return status_; }

  // The newest version that is complete in glo_buf.
  int64_t global_version() const { return global_version_; }

  // Flag 1: loc_buf is w_loc(iteration()). Flag 0: the local update of iteration() comes next.
  int64_t iteration() const { return iteration_; }
  int64_t readers() const { return readers_; }

  // True if some reader has acquired w_loc(iteration()).
  bool was_read() const { return was_read_; }

  // "loc_buf 1 (updated, iteration 4, read, 0 readers), glo_buf holds version 3 (not merged)".
  std::string ToString() const;

 private:
  absl::Status Refuse(TensorEvent event, int64_t number, const std::string& expected) const;

  std::string name_;
  LocStatus status_ = LocStatus::kUpdated;
  int64_t iteration_ = 1;
  int64_t readers_ = 0;
  bool was_read_ = false;
  int64_t global_version_ = 0;
  bool merged_ = false;   // global_version_ has been copied to loc_buf
  bool writing_ = false;  // version global_version_ + 1 is being written to glo_buf
};

}  // namespace slimps

#endif  // SLIMPS_BACKUP_MODEL_TENSOR_STATE_H_

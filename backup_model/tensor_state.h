// Who may touch one tensor's glo_buf and loc_buf, and when: the status flag of SlimGC section 3.6
// as a pure state machine. Events are either accepted, which changes the state, or refused, which
// does not.
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
// It begins as [1] unread with w_loc(1) = version 0, and held(0). Version v+1 cannot even be
// ordered before v is merged, and v = i-1 is merged only after iteration i has read its weights:
// hence exactly one round of lag.
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

  // Each: FailedPrecondition, naming the tensor, the state and what was expected, when it is not
  // this event's turn.
  [[nodiscard]] absl::Status BeginGlobal(int64_t version);
  [[nodiscard]] absl::Status GlobalArrived(int64_t version);
  [[nodiscard]] absl::Status MergeGlobal(int64_t version);
  [[nodiscard]] absl::Status LocalUpdate(int64_t iteration);
  [[nodiscard]] absl::Status AcquireRead(int64_t iteration);
  [[nodiscard]] absl::Status ReleaseRead();

  LocStatus status() const { return status_; }
  // The newest version whole in glo_buf.
  int64_t global_version() const { return global_version_; }
  // Flag 1: loc_buf is w_loc(iteration()). Flag 0: the local update of iteration() is due.
  int64_t iteration() const { return iteration_; }
  int64_t readers() const { return readers_; }
  // Someone has read w_loc(iteration()).
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
  bool writing_ = false;  // version global_version_ + 1 is on its way into glo_buf
};

}  // namespace slimps

#endif  // SLIMPS_BACKUP_MODEL_TENSOR_STATE_H_

// SPDX-License-Identifier: Apache-2.0
// The scheduler's journal: the messages that changed its state, in order. A scheduler that is
// started again reads them and is where the one before was.
//
//   SLIMPS_ASSIGN_OR_RETURN(auto journal, Journal::Open(path, head));
//   state.Restore(journal->TakeEntries(), now);
//   journal->Append(state.TakeEntries());        // before the answers are sent
//
// File:    record*        the first names the job: its header has a Roster with the job's counts
// Record:  length, u32    of what follows the check; little-endian, as the next
//          check, u64     XXH3-64 of what follows
//          kind, u8       JournalEntry::Kind
//          header         a serialised wire::Header
// The last record may be torn. It was then not answered, and its sender repeats it.
//
// What is written survives the process, and not the machine: nothing is synced. Open writes the
// file anew without barriers that nobody comes to any more. Owned by SchedulerService.
#ifndef SLIMPS_SCHEDULER_JOURNAL_H_
#define SLIMPS_SCHEDULER_JOURNAL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/base/file.h"
#include "proto/slimps.pb.h"

namespace slimps {

struct JournalEntry {
  enum class Kind : uint8_t {
    kMessage = 0,
    kTakesPlace = 1,  // a Register that took the place of a process that was gone
    kAway = 2,        // no message: its sender is a worker that stays away
  };
  // A message that changed the scheduler's state. Its sender is the node's place. A Register wants
  // the rank that it was given.
  wire::Header header;
  Kind kind = Kind::kMessage;
};

// What a journal is of.
struct JournalHead {
  std::string job_id;
  uint32_t num_workers = 0;
  uint32_t num_servers = 0;
};

// Thread-compatible.
class Journal final {
 public:
  // Opens the journal at `path`, or makes it.
  // FailedPrecondition: it is of another job.
  // DataLoss: it is no journal. A torn or damaged end is dropped and logged instead.
  // Unavailable: it cannot be read or written.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Journal>> Open(
      std::string path, const JournalHead& head, const Disk* disk = MachineDisk());
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Removes and returns what Open has read.
  std::vector<JournalEntry> TakeEntries() { return std::exchange(read_, {}); }

  // Writes the entries. After an error nothing is written any more: a scheduler that is started
  // again would miss what was left out. The file is removed then.
  // Unavailable: the disk's error, each time.
  [[nodiscard]] absl::Status Append(const std::vector<JournalEntry>& entries);

  // Removes the file: the job is over.
  void Remove();

 private:
  Journal(std::string path, const Disk* disk, int file)
      : path_(std::move(path)), disk_(disk), file_(file) {}

  const std::string path_;
  const Disk* const disk_;
  const int file_;
  absl::Status status_;
  std::vector<JournalEntry> read_;
};

// Returns the entries without those of barriers that two newer ones of their name have followed,
// and that a BarrierTable does not remember: they only opened, or there was no room for their sums.
std::vector<JournalEntry> WithoutOldBarriers(std::vector<JournalEntry> entries,
                                             uint32_t num_workers);

}  // namespace slimps

#endif  // SLIMPS_SCHEDULER_JOURNAL_H_

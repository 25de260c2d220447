// SPDX-License-Identifier: Apache-2.0
#include "scheduler/journal.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "proto/base/hash.h"
#include "proto/base/status_macros.h"
#include "scheduler/barrier.h"

namespace slimps {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");
constexpr size_t kPrefix = sizeof(uint32_t) + sizeof(uint64_t);

std::string RecordOf(const JournalEntry& entry) {
  std::string bytes(1, static_cast<char>(entry.kind));
  entry.header.AppendToString(&bytes);
  std::string record(kPrefix, '\0');
  const uint32_t length = static_cast<uint32_t>(bytes.size());
  const uint64_t check = HashText(bytes);
  std::memcpy(record.data(), &length, sizeof(length));
  std::memcpy(record.data() + sizeof(length), &check, sizeof(check));
  return record + bytes;
}

// Takes the next record off `rest`; nullopt: it is torn or damaged.
std::optional<JournalEntry> TakeRecord(std::string_view* rest) {
  if (rest->size() < kPrefix + 1) return std::nullopt;
  uint32_t length = 0;
  uint64_t check = 0;
  std::memcpy(&length, rest->data(), sizeof(length));
  std::memcpy(&check, rest->data() + sizeof(length), sizeof(check));
  if (length == 0 || length > rest->size() - kPrefix) return std::nullopt;
  const std::string_view bytes = rest->substr(kPrefix, length);
  JournalEntry entry{.kind = static_cast<JournalEntry::Kind>(bytes[0])};
  if (HashText(bytes) != check || entry.kind > JournalEntry::Kind::kAway ||
      !entry.header.ParseFromArray(bytes.data() + 1, static_cast<int>(length - 1))) {
    return std::nullopt;
  }
  rest->remove_prefix(kPrefix + length);
  return entry;
}

JournalEntry HeadEntry(const JournalHead& head) {
  JournalEntry entry;
  entry.header.set_job_id(head.job_id);
  entry.header.mutable_roster()->set_num_workers(head.num_workers);
  entry.header.mutable_roster()->set_num_servers(head.num_servers);
  return entry;
}

absl::Status CheckHead(const std::string& path, const JournalHead& head, const wire::Header& read) {
  const wire::Roster& counts = read.roster();
  if (read.job_id() == head.job_id && counts.num_workers() == head.num_workers &&
      counts.num_servers() == head.num_servers) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": expected the journal of job \"", head.job_id, "\" with ",
                   head.num_workers, " workers and ", head.num_servers, " servers, got job \"",
                   read.job_id(), "\" with ", counts.num_workers(), " and ", counts.num_servers()));
}

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", strerror(error)));
}

absl::StatusOr<std::vector<JournalEntry>> Read(const std::string& path, const JournalHead& head) {
  std::error_code failed;
  const uintmax_t size = std::filesystem::file_size(path, failed);
  if (failed == std::errc::no_such_file_or_directory) return std::vector<JournalEntry>();
  std::ifstream file(path, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  if (failed || file.bad() || content.size() != size) {
    return absl::UnavailableError(
        absl::StrCat("cannot read ", path, ", which has ", size, " bytes: got ", content.size()));
  }
  std::string_view rest = content;
  if (content.empty()) return std::vector<JournalEntry>();
  std::vector<JournalEntry> entries;
  const std::optional<JournalEntry> first = TakeRecord(&rest);
  if (!first.has_value()) {
    return absl::DataLossError(absl::StrCat(path, ": expected a scheduler's journal"));
  }
  SLIMPS_RETURN_IF_ERROR(CheckHead(path, head, first->header));
  while (std::optional<JournalEntry> entry = TakeRecord(&rest)) {
    entries.push_back(*std::move(entry));
  }
  if (!rest.empty()) {
    LOG(WARNING) << path << ": the last " << rest.size() << " bytes are torn or damaged; the "
                 << entries.size() << " records before them count";
  }
  return entries;
}

}  // namespace

std::vector<JournalEntry> WithoutOldBarriers(std::vector<JournalEntry> entries,
                                             uint32_t num_workers) {
  std::map<std::string, uint64_t> newest;  // by name
  std::set<std::pair<std::string, uint64_t>> remembered, seen;
  std::set<uint32_t> have_pushed;  // ranks
  size_t room = BarrierTable::Options().max_remembered_bytes;
  for (const JournalEntry& entry : entries) {
    if (entry.header.heartbeat().has_pushed() &&
        have_pushed.insert(entry.header.sender().rank()).second &&
        have_pushed.size() == num_workers) {
      room = std::min(room, BarrierTable::kBytesOfTraining);
    }
    if (!entry.header.has_barrier()) continue;
    const wire::Barrier& barrier = entry.header.barrier();
    uint64_t& ticket = newest[barrier.name()];
    ticket = std::max<uint64_t>(ticket, barrier.ticket());
    if (!seen.emplace(barrier.name(), barrier.ticket()).second) continue;
    const size_t bytes = BarrierTable::BytesToRemember(barrier);
    if (bytes == 0 || bytes > room) continue;
    room -= bytes;
    remembered.emplace(barrier.name(), barrier.ticket());
  }
  // The newest may be open, and somebody may still ask for the one before.
  std::erase_if(entries, [&](const JournalEntry& entry) {
    const wire::Barrier& barrier = entry.header.barrier();
    return entry.header.has_barrier() && barrier.ticket() + 1 < newest[barrier.name()] &&
           !remembered.contains({barrier.name(), barrier.ticket()});
  });
  return entries;
}

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(std::string path, const JournalHead& head,
                                                       const Disk* disk) {
  SLIMPS_ASSIGN_OR_RETURN(std::vector<JournalEntry> entries, Read(path, head));
  entries = WithoutOldBarriers(std::move(entries), head.num_workers);
  const std::string draft = absl::StrCat(path, ".new");
  int file = -1;
  if (const int error = disk->Create(draft, &file); error != 0) return CannotWrite(draft, error);
  std::unique_ptr<Journal> journal(new Journal(path, disk, file));
  absl::Status written = journal->Append({HeadEntry(head)});
  if (written.ok()) written = journal->Append(entries);
  if (written.ok()) {
    if (const int error = disk->Rename(draft, path); error != 0) written = CannotWrite(path, error);
  }
  if (!written.ok()) {
    disk->Remove(draft);
    return written;
  }
  journal->read_ = std::move(entries);
  return journal;
}

Journal::~Journal() { disk_->Close(file_); }

absl::Status Journal::Append(const std::vector<JournalEntry>& entries) {
  std::string bytes;
  for (const JournalEntry& entry : entries) bytes += RecordOf(entry);
  if (!status_.ok()) return status_;
  if (const int error = disk_->Write(file_, bytes); error != 0) {
    status_ = CannotWrite(path_, error);
    Remove();
  }
  return status_;
}

void Journal::Remove() { disk_->Remove(path_); }

}  // namespace slimps

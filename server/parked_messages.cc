#include "server/parked_messages.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace slimps {
namespace {

size_t BytesOf(const Message& message) {
  size_t bytes = message.header.ByteSizeLong();
  for (const Payload& payload : message.payloads) bytes += payload.size();
  return bytes;
}

bool IsLate(const EarlyMessage& early, absl::Time now) {
  return now - early.came >= ParkedMessages::kLongest;
}

}  // namespace

absl::Status ParkedMessages::Add(EarlyMessage&& early, absl::Time now) {
  const size_t bytes = BytesOf(early.message);
  if (IsLate(early, now)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("it has not come within ", absl::FormatDuration(kLongest)));
  }
  if (messages_.size() >= kMostMessages || bytes > kMostBytes - bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(messages_.size(), " messages of ", bytes_,
                     " bytes wait for the next already; this one has ", bytes, ", at most ",
                     kMostMessages, " of ", kMostBytes, " may"));
  }
  messages_.push_back(std::move(early));
  bytes_ += bytes;
  return absl::OkStatus();
}

std::vector<EarlyMessage> ParkedMessages::TakeLate(absl::Time now) {
  const auto late =
      std::stable_partition(messages_.begin(), messages_.end(),
                            [now](const EarlyMessage& early) { return !IsLate(early, now); });
  std::vector<EarlyMessage> taken(std::make_move_iterator(late),
                                  std::make_move_iterator(messages_.end()));
  messages_.erase(late, messages_.end());
  for (const EarlyMessage& early : taken) bytes_ -= BytesOf(early.message);
  return taken;
}

std::vector<EarlyMessage> ParkedMessages::TakeAll() {
  bytes_ = 0;
  return std::exchange(messages_, {});
}

}  // namespace slimps

// SPDX-License-Identifier: Apache-2.0
#include "scheduler/join_log.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/net/membership/node_name.h"

namespace slimps {
namespace {

constexpr size_t kMaxOfHost = 64;  // bytes of each text that the node sent of itself
constexpr size_t kMaxOfWhy = 400;  // bytes of the reason

std::string Shown(const std::string& text, size_t most) {
  return absl::Utf8SafeCHexEscape(text.substr(0, most));
}

// "a worker (host b, pid 17)".
std::string Describe(const wire::Register& registration) {
  return absl::StrCat("a ", RoleName(registration.role()), " (host ",
                      Shown(registration.host(), kMaxOfHost), ", pid ", registration.pid(), ")");
}

}  // namespace

void JoinLog::Joined(const Member& member, const std::string& missing) {
  std::string where;
  for (const std::string& endpoint : member.entry.endpoints()) {
    absl::StrAppend(&where, where.empty() ? " listens at " : ", ", Shown(endpoint, kMaxOfHost));
  }
  lines_.push_back(absl::StrCat(Shown(member.ToString(), kMaxOfWhy), where.empty() ? " is" : where,
                                where.empty() ? " there" : "",
                                missing.empty() ? "" : "; missing: ", missing));
}

void JoinLog::Replaced(const Member& member) {
  lines_.push_back(absl::StrCat(Shown(member.ToString(), kMaxOfWhy),
                                " is gone; a process that was started anew takes its place"));
}

void JoinLog::Disconnected(const Member& member, absl::Duration timeout, absl::Duration age) {
  if (!TakeRoom(age)) return;
  lines_.push_back(absl::StrCat(Shown(member.ToString(), kMaxOfWhy),
                                " has closed its connection, and is awaited for ",
                                absl::FormatDuration(timeout)));
}

void JoinLog::Awaited(const std::string& reason, absl::Duration timeout) {
  lines_.push_back(absl::StrCat(Shown(reason, kMaxOfWhy), "; the job waits up to ",
                                absl::FormatDuration(timeout), " for it to be started again"));
}

void JoinLog::LeftBehind(const Member& member, absl::Duration timeout) {
  lines_.push_back(absl::StrCat(member.ToString(), " has been gone for over ",
                                absl::FormatDuration(timeout),
                                "; the job goes on without it, and takes it back at any time"));
}

void JoinLog::Refused(const wire::Header& header, const absl::Status& why, absl::Duration age) {
  const std::string line = absl::StrCat("refused ", Describe(header.register_()), ": ",
                                        Shown(std::string(why.message()), kMaxOfWhy));
  if (std::ranges::find(refusals_, line) != refusals_.end()) return;
  refusals_.push_back(line);
  if (refusals_.size() > options_.max_remembered) refusals_.pop_front();

  if (!TakeRoom(age)) {
    ++untold_;
    return;
  }
  lines_.push_back(untold_ == 0 ? line
                                : absl::StrCat(line, " (after ", untold_, " more refusals)"));
  untold_ = 0;
}

bool JoinLog::TakeRoom(absl::Duration age) {
  const int64_t earned = (age - refilled_at_) / options_.line_every;
  if (earned > 0) {
    refilled_at_ += earned * options_.line_every;
    lines_left_ = std::min(options_.max_lines, lines_left_ + static_cast<size_t>(earned));
  }
  if (lines_left_ == 0) return false;
  --lines_left_;
  return true;
}

}  // namespace slimps

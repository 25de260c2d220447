#include "worker/trainer/atomic_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace slimps {

absl::Status WriteFileAtomically(const std::string& path, std::string_view content) {
  const std::string draft = absl::StrCat(path, ".", getpid(), ".tmp");
  errno = 0;
  bool written = false;
  {
    std::ofstream out(draft, std::ios::binary);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    written = static_cast<bool>(out.flush());
  }
  if (written && std::rename(draft.c_str(), path.c_str()) == 0) return absl::OkStatus();
  const std::string why = std::strerror(errno);
  std::remove(draft.c_str());
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", why));
}

}  // namespace slimps

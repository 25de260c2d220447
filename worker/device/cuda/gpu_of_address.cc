// SPDX-License-Identifier: Apache-2.0
// GpuOfAddress of cuda_driver.h. It must cost next to nothing where no GPU is in use: calls that
// push a few floats from the host ask it, too.
#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <climits>
#include <cstring>
#include <string_view>

#include "worker/device/cuda/cuda_driver.h"
#include "worker/device/cuda/libcuda_api.h"

namespace slimps {
namespace {

using libcuda::DevicePointer;
using Ask = decltype(libcuda::Api::PointerGetAttribute);

// Gives how many libraries this process has ever loaded. Looks at one of them only.
int CountLoaded(dl_phdr_info* info, size_t /*size*/, void* count) {
  *static_cast<unsigned long long*>(count) = info->dlpi_adds;  // NOLINT(google-runtime-int)
  return 1;
}

// Copies the path of the CUDA driver, if this is it. Allocates nothing: the loader holds its lock.
int FindDriver(dl_phdr_info* info, size_t /*size*/, void* path) {
  const std::string_view loaded = info->dlpi_name;
  const std::string_view name = loaded.substr(loaded.rfind('/') + 1);
  // Some open it by the name that compilers link, and the loader keeps that one.
  if ((name != "libcuda.so" && !name.starts_with("libcuda.so.")) || loaded.size() >= PATH_MAX)
    return 0;
  std::memcpy(path, loaded.data(), loaded.size());
  return 1;
}

// Returns the driver's function; null: this process has not loaded the driver.
Ask FindAsk() {
  static std::atomic<Ask> found{nullptr};  // publishes nothing else
  // What CountLoaded said when the driver was last looked for. Publishes nothing else.
  static std::atomic<unsigned long long> looked{0};  // NOLINT(google-runtime-int)
  if (const Ask ask = found.load(); ask != nullptr) return ask;
  unsigned long long loaded = 0;  // NOLINT(google-runtime-int)
  dl_iterate_phdr(CountLoaded, &loaded);
  if (loaded == looked.load()) return nullptr;
  char path[PATH_MAX] = {};
  if (dl_iterate_phdr(FindDriver, path) != 0) {
    // Stays open: torch may use it until the process ends.
    void* const library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (library != nullptr) {
      found.store(reinterpret_cast<Ask>(dlsym(library, "cuPointerGetAttribute")));
    }
  }
  looked.store(loaded);
  return found.load();
}

}  // namespace

std::optional<int> GpuOfAddress(const void* memory) {
  const Ask ask = FindAsk();
  if (ask == nullptr) return std::nullopt;
  const auto pointer = reinterpret_cast<DevicePointer>(memory);
  unsigned type = 0;
  int ordinal = 0;
  // A driver that nobody has initialised fails, as for memory that it has not heard of.
  if (ask(&type, libcuda::kMemoryTypeAttribute, pointer) != libcuda::kSuccess ||
      type != libcuda::kMemoryTypeDevice ||
      ask(&ordinal, libcuda::kDeviceOrdinalAttribute, pointer) != libcuda::kSuccess) {
    return std::nullopt;
  }
  return ordinal;
}

}  // namespace slimps

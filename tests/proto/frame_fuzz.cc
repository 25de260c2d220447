// SPDX-License-Identifier: Apache-2.0
// Fuzzer of ParseFrame.
//   bazel build --config=fuzz //tests/proto:frame_fuzz
//   bazel-bin/tests/proto/frame_fuzz -max_total_time=600 NEW_CORPUS tests/proto/corpus
// Add an input that breaks it to tests/proto/corpus. FrameFuzz.KeptInputsPass replays that folder.
#include <cstddef>
#include <cstdint>
#include <span>

#include "google/protobuf/stubs/logging.h"
#include "tests/proto/frame_fuzz_input.h"

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  google::protobuf::SetLogHandler(nullptr);  // protobuf logs each string that is not UTF-8
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  slimps::CheckFuzzInput(std::as_bytes(std::span<const uint8_t>(data, size)));
  return 0;
}

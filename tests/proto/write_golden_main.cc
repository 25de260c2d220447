// SPDX-License-Identifier: Apache-2.0
// Writes the golden files: bazel run //tests/proto:write_golden -- $PWD/tests/proto/golden
// Use it only for added messages. The bytes of existing messages must never change within one
// protocol version.
#include <fstream>
#include <iostream>
#include <string>

#include "tests/proto/golden_files.h"
#include "tests/proto/golden_messages.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_golden DIRECTORY\n";
    return 2;
  }
  const std::string directory = argv[1];
  for (const slimps::GoldenMessage& golden : slimps::GoldenMessages()) {
    const auto frame = slimps::BuildFrame(golden.message, slimps::kDefaultLimits);
    if (!frame.ok()) {
      std::cerr << golden.name << ": " << frame.status() << "\n";
      return 1;
    }
    std::ofstream(directory + "/" + golden.name + ".bin", std::ios::binary)
        << slimps::ToFileBytes(*frame);
  }
  std::ofstream(directory + "_listing.txt") << slimps::GoldenListing();
  return 0;
}

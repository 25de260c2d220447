// SPDX-License-Identifier: Apache-2.0
// Converts Python's keys and arrays to C++. Every function here needs the GIL.
//
//   const Key name = ToKey(key);
//   HeldArray gradient(array, HeldArray::Access::kRead);   // keeps the memory in place
//   store->Push(name, gradient.floats(), priority);
#ifndef SLIMPS_PYTHON_EXTENSION_ARRAYS_H_
#define SLIMPS_PYTHON_EXTENSION_ARRAYS_H_

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/base/key.h"

namespace slimps::python {

// Returns the key of an int or a str.
// TypeError: `key` is anything else, also a bool.
Key ToKey(pybind11::handle key);

// Holds a Python array's memory in place as long as this lives. Thread-compatible.
// REQUIRES: construction and destruction hold the GIL.
class HeldArray final {
 public:
  enum class Access { kRead, kWrite };

  // TypeError: the array is not contiguous float32.
  // The array's own exception (BufferError, ValueError): it is read-only and `access` is kWrite.
  HeldArray(pybind11::handle array, Access access);

  // The array's elements. REQUIRES: with Access::kRead, the caller does not write to them.
  std::span<float> floats() const { return floats_; }

 private:
  struct Release {
    void operator()(Py_buffer* view) const;
  };
  std::unique_ptr<Py_buffer, Release> view_;
  std::span<float> floats_;
};

// True if no array of one group overlaps an array of another group.
bool AreApart(const std::vector<std::vector<std::span<const float>>>& groups);

// Returns a copy of the ids.
// TypeError: `ids` is not contiguous int64 in one dimension.
std::vector<int64_t> ToRowIds(const pybind11::buffer& ids);

// Returns a copy of the values' memory.
template <typename Value>
pybind11::bytes AsBytes(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

}  // namespace slimps::python

#endif  // SLIMPS_PYTHON_EXTENSION_ARRAYS_H_

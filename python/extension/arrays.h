// Keys and arrays of Python as C++ sees them. All with the GIL held.
#ifndef SLIMPS_PYTHON_EXTENSION_ARRAYS_H_
#define SLIMPS_PYTHON_EXTENSION_ARRAYS_H_

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/base/key.h"

namespace slimps::python {

// An int (bool is none) or a str. TypeError: anything else.
Key ToKey(pybind11::handle key);

// Python memory, kept in place as long as this lives. Made and destroyed with the GIL held.
class HeldArray final {
 public:
  enum class Access { kRead, kWrite };

  // TypeError: not contiguous float32, or read-only where it is to be written.
  HeldArray(pybind11::handle array, Access access);
  std::span<float> floats() const { return floats_; }

 private:
  struct Release {
    void operator()(Py_buffer* view) const;
  };
  std::unique_ptr<Py_buffer, Release> view_;
  std::span<float> floats_;
};

// Whether no array of one group overlaps one of another.
bool AreApart(const std::vector<std::vector<std::span<const float>>>& groups);

// Contiguous int64 in one dimension. TypeError: anything else.
std::vector<int64_t> ToRowIds(const pybind11::buffer& ids);

template <typename Value>
pybind11::bytes AsBytes(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}

}  // namespace slimps::python

#endif  // SLIMPS_PYTHON_EXTENSION_ARRAYS_H_

// SPDX-License-Identifier: Apache-2.0
#include "python/extension/arrays.h"

#include <algorithm>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"

namespace slimps::python {

namespace py = pybind11;

Key ToKey(py::handle key) {
  if (py::isinstance<py::str>(key)) return Key(key.cast<std::string>());
  if (py::isinstance<py::int_>(key) && !py::isinstance<py::bool_>(key)) {
    return Key(key.cast<int64_t>());
  }
  throw py::type_error(
      absl::StrCat("key: expected an int of 64 bits or a str, got ", std::string(py::repr(key))));
}

HeldArray::HeldArray(py::handle array, Access access) {
  if (PyObject_CheckBuffer(array.ptr()) == 0) {
    throw py::type_error(absl::StrCat("array: expected a buffer of float32, got ",
                                      std::string(py::repr(py::type::of(array)))));
  }
  // Not py::buffer::request, which allocates four times per array: hundreds of arrays come at once.
  auto view = std::make_unique<Py_buffer>();
  const int writable = access == Access::kWrite ? PyBUF_WRITABLE : 0;
  if (PyObject_GetBuffer(array.ptr(), view.get(), PyBUF_STRIDES | PyBUF_FORMAT | writable) != 0) {
    throw py::error_already_set();
  }
  view_.reset(view.release());
  const std::string format = view_->format == nullptr ? "B" : view_->format;
  Py_ssize_t packed = view_->itemsize;
  bool contiguous = true;
  for (int i = view_->ndim; i-- > 0;) {
    contiguous = contiguous && (view_->shape[i] <= 1 || view_->strides[i] == packed);
    packed *= view_->shape[i];
  }
  if (format != "f" || !contiguous) {
    throw py::type_error(absl::StrCat("array: expected contiguous float32, got format \"", format,
                                      "\"", contiguous ? "" : " with gaps"));
  }
  floats_ = {static_cast<float*>(view_->buf), static_cast<size_t>(view_->len) / sizeof(float)};
}

void HeldArray::Release::operator()(Py_buffer* view) const {
  PyBuffer_Release(view);
  delete view;
}

bool AreApart(const std::vector<std::vector<std::span<const float>>>& groups) {
  struct Extent {
    const float* begin;
    const float* end;
    size_t group;
  };
  std::vector<Extent> extents;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const std::span<const float> array : groups[i]) {
      extents.push_back({array.data(), array.data() + array.size(), i});
    }
  }
  std::ranges::sort(extents, std::less<>(), &Extent::begin);
  // The extent that reaches farthest so far. If `next` overlaps any earlier extent, it overlaps
  // this one too. If only the earlier one is of another group, it overlaps `last`, which was found
  // before.
  const Extent* last = nullptr;
  for (const Extent& next : extents) {
    if (last != nullptr && next.begin < last->end && next.group != last->group) return false;
    if (last == nullptr || next.end > last->end) last = &next;
  }
  return true;
}

std::vector<int64_t> ToRowIds(const py::buffer& ids) {
  const py::buffer_info info = ids.request();
  if (info.ndim != 1 || info.itemsize != sizeof(int64_t) ||
      (info.format != "l" && info.format != "q") || (info.size > 1 && info.strides[0] != 8)) {
    throw py::type_error(
        absl::StrCat("row ids: expected contiguous int64, got format \"", info.format, "\""));
  }
  const auto* first = static_cast<const int64_t*>(info.ptr);
  return {first, first + info.size};
}

}  // namespace slimps::python

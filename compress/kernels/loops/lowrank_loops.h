// SPDX-License-Identifier: Apache-2.0
// The kernels of lowrank.h, for any set of lanes.
//
// Vectors are taken four at a time, for one row: their sums stay in registers, and the row stays in
// the first-level cache for the next four. Projecting back takes four rows together, so that q is
// read and written once for them.
#ifndef SLIMPS_COMPRESS_KERNELS_LOOPS_LOWRANK_LOOPS_H_
#define SLIMPS_COMPRESS_KERNELS_LOOPS_LOWRANK_LOOPS_H_

#include "compress/kernels/lanes/lanes.h"
#include "compress/kernels/lowrank.h"

namespace slimps {
namespace {

constexpr size_t kVectors = 4;  // of a factor, taken together
constexpr size_t kBackRows = 4;

// Calls body.operator()<count>(first) for the vectors [first, first + count) of each group.
template <typename Body>
inline __attribute__((always_inline)) void ForVectors(size_t rank, const Body& body) {
  size_t k = 0;
  for (; rank - k >= kVectors; k += kVectors) body.template operator()<kVectors>(k);
  switch (rank - k) {
    case 3:
      return body.template operator()<3>(k);
    case 2:
      return body.template operator()<2>(k);
    case 1:
      return body.template operator()<1>(k);
    default:
      return;
  }
}

// Sets out[k * stride] = the sum over j of x[j] * q[k * columns + j].
template <size_t kCount>
inline void ProjectRow(const float* x, const float* q, size_t columns, float* out, size_t stride) {
  F32x16 sums[kCount];
  for (F32x16& sum : sums) sum = SetF(0);
  ForLanes(columns, [&](size_t j, auto count) {
    const F32x16 value = LoadF(x + j, count);
#pragma GCC unroll 4
    for (size_t k = 0; k < kCount; ++k) {
      sums[k] = AddProductF(sums[k], value, LoadF(q + k * columns + j, count));
    }
  });
  for (size_t k = 0; k < kCount; ++k) out[k * stride] = FoldSum(sums[k]);
}

// Sets x = gradient * grad_scale + x of one row, and out as ProjectRow. Returns the sum of x * x.
template <size_t kCount>
inline float TakeRow(const float* gradient, F32x16 grad_scale, float* x, const float* q,
                     size_t columns, float* out, size_t stride) {
  F32x16 sums[kCount], norm2 = SetF(0);
  for (F32x16& sum : sums) sum = SetF(0);
  ForLanes(columns, [&](size_t j, auto count) {
    const F32x16 value = AddF(MulF(LoadF(gradient + j, count), grad_scale), LoadF(x + j, count));
    StoreF(value, x + j, count);
    norm2 = AddSquareF(norm2, value);
#pragma GCC unroll 4
    for (size_t k = 0; k < kCount; ++k) {
      sums[k] = AddProductF(sums[k], value, LoadF(q + k * columns + j, count));
    }
  });
  for (size_t k = 0; k < kCount; ++k) out[k * stride] = FoldSum(sums[k]);
  return FoldSum(norm2);
}

inline double Project(const LowRankShape& shape, const float* gradient, float grad_scale, float* x,
                      const float* q, float* p) {
  const F32x16 scale = SetF(grad_scale);
  const size_t columns = shape.columns;
  double norm2 = 0;
  for (size_t i = 0; i < shape.rows; ++i) {
    float* const row = x + i * columns;
    ForVectors(shape.rank, [&]<size_t kCount>(size_t k) {
      const float* const vectors = q + k * columns;
      float* const out = p + k * shape.p_stride + i;
      if (k == 0) {
        norm2 += double{TakeRow<kCount>(gradient + i * columns, scale, row, vectors, columns, out,
                                        shape.p_stride)};
      } else {
        ProjectRow<kCount>(row, vectors, columns, out, shape.p_stride);
      }
    });
  }
  return norm2;
}

// Adds kRows rows' products to kCount vectors of q.
template <size_t kRows, size_t kCount>
inline void BackRows(const float* x, const float* p, size_t stride, size_t columns, float* q) {
  ForLanes(columns, [&](size_t j, auto count) {
    F32x16 values[kRows];
#pragma GCC unroll 4
    for (size_t i = 0; i < kRows; ++i) values[i] = LoadF(x + i * columns + j, count);
#pragma GCC unroll 4
    for (size_t k = 0; k < kCount; ++k) {
      float* const to = q + k * columns + j;
      F32x16 sum = LoadF(to, count);
#pragma GCC unroll 4
      for (size_t i = 0; i < kRows; ++i) sum = AddProductF(sum, values[i], SetF(p[k * stride + i]));
      StoreF(sum, to, count);
    }
  });
}

inline void ProjectBack(const LowRankShape& shape, const float* x, const float* p, float* q) {
  const size_t columns = shape.columns, stride = shape.p_stride;
  size_t i = 0;
  for (; shape.rows - i >= kBackRows; i += kBackRows) {
    ForVectors(shape.rank, [&]<size_t kCount>(size_t k) {
      BackRows<kBackRows, kCount>(x + i * columns, p + k * stride + i, stride, columns,
                                  q + k * columns);
    });
  }
  for (; i < shape.rows; ++i) {
    ForVectors(shape.rank, [&]<size_t kCount>(size_t k) {
      BackRows<1, kCount>(x + i * columns, p + k * stride + i, stride, columns, q + k * columns);
    });
  }
}

// Subtracts kCount vectors' products from one row. Returns the sum of x * x.
template <size_t kCount>
inline float SubtractRow(const float* p, size_t stride, const float* q, size_t columns, float* x) {
  F32x16 factors[kCount], norm2 = SetF(0);
  for (size_t k = 0; k < kCount; ++k) factors[k] = SetF(p[k * stride]);
  ForLanes(columns, [&](size_t j, auto count) {
    F32x16 value = LoadF(x + j, count);
#pragma GCC unroll 4
    for (size_t k = 0; k < kCount; ++k) {
      value = SubProductF(value, factors[k], LoadF(q + k * columns + j, count));
    }
    StoreF(value, x + j, count);
    norm2 = AddSquareF(norm2, value);
  });
  return FoldSum(norm2);
}

inline double Subtract(const LowRankShape& shape, const float* p, const float* q, float* x) {
  const size_t columns = shape.columns, stride = shape.p_stride;
  double norm2 = 0;
  for (size_t i = 0; i < shape.rows; ++i) {
    float last = 0;
    ForVectors(shape.rank, [&]<size_t kCount>(size_t k) {
      last = SubtractRow<kCount>(p + k * stride + i, stride, q + k * columns, columns,
                                 x + i * columns);
    });
    norm2 += double{last};
  }
  return norm2;
}

constexpr LowRankKernels kLowRankKernels = {
    .project = Project,
    .project_back = ProjectBack,
    .subtract = Subtract,
};

}  // namespace
}  // namespace slimps

#endif  // SLIMPS_COMPRESS_KERNELS_LOOPS_LOWRANK_LOOPS_H_

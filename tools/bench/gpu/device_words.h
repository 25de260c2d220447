// SPDX-License-Identifier: Apache-2.0
// The words in which a kernel is written, for three compilers: the toolkit's nvcc, clang without a
// toolkit, and any C++ compiler, which makes a function of the host, for tests.
//
//   SLIMPS_KERNEL Twice(float* values) {       // a block has kThreads threads
//     SLIMPS_SHARED float shared[kThreads];    // of the block
//     SLIMPS_PHASE(thread) { shared[thread] = values[BlockIndex() * kThreads + thread]; }
//     SLIMPS_PHASE(thread) { ... }             // every thread has ended the phase before
//   }
//
// A kernel's body is a sequence of phases. On a GPU a phase is a barrier, then the thread's own
// part; on the host it is a loop over the threads. No variable of a thread outlives its phase.
#ifndef SLIMPS_TOOLS_BENCH_GPU_DEVICE_WORDS_H_
#define SLIMPS_TOOLS_BENCH_GPU_DEVICE_WORDS_H_

#include <stdint.h>

#ifdef __CUDA__  // clang
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(threads) __attribute__((launch_bounds(threads)))
#endif

namespace slimps::device {

constexpr uint32_t kThreads = 512;

#if defined(__CUDA__) || defined(__NVCC__)

#define SLIMPS_DEVICE __device__ inline
#define SLIMPS_KERNEL extern "C" __global__ void __launch_bounds__(slimps::device::kThreads)
#define SLIMPS_SHARED __shared__
#define SLIMPS_PHASE(thread) \
  for (uint32_t thread = slimps::device::EnterPhase(), once = 1; once == 1; once = 0)

#ifdef __CUDA__
__device__ inline uint32_t BlockIndex() { return __nvvm_read_ptx_sreg_ctaid_x(); }
__device__ inline uint32_t ThreadIndex() { return __nvvm_read_ptx_sreg_tid_x(); }
#else
__device__ inline uint32_t BlockIndex() { return blockIdx.x; }
__device__ inline uint32_t ThreadIndex() { return threadIdx.x; }
#endif

__device__ inline uint32_t EnterPhase() {
  __syncthreads();
  return ThreadIndex();
}

#else

#define SLIMPS_DEVICE inline
#define SLIMPS_KERNEL extern "C" inline void
#define SLIMPS_SHARED
#define SLIMPS_PHASE(thread) for (uint32_t thread = 0; thread < slimps::device::kThreads; ++thread)

// The block that this thread of the host computes. A kernel has no parameter for it.
inline thread_local uint32_t host_block = 0;
inline uint32_t BlockIndex() { return host_block; }

#endif

}  // namespace slimps::device

#endif  // SLIMPS_TOOLS_BENCH_GPU_DEVICE_WORDS_H_

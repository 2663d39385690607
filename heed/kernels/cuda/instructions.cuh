// Instructions that C++ has no word for, all of them of any GPU from 8.0 on: asynchronous copies
// into shared memory (cp.async), and products on tensor cores. Included by .cu files alone.
#pragma once

#include <cstdint>

namespace heed::kernels {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// ---- cp.async: copies into shared memory, of 16 bytes not through L1

template <class T>
__device__ inline void copy_pack(const T* from, T* to) {  // 16 bytes
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}
// 16 or 4 bytes from memory, or zeros.
__device__ inline void copy16(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ inline void copy16(void* to, const void* from, bool there) {
  copy16(shared_address(to), from, there);
}
__device__ inline void copy4(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
               "r"(there ? 4 : 0)
               : "memory");
}
// Closes a group: this thread's copies since the last one, be there any or none.
__device__ inline void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the last kLater groups of this thread's copies are there. Other threads see them
// after a barrier.
template <int kLater>
__device__ inline void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}
// Until all that this thread copies is there.
__device__ inline void copies_finish() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ---- products of a warp: mma.sync m16n8k16, bf16 in, f32 sums

// ldmatrix: four matrices of 8 x 8 from shared memory, as they are or transposed; each lane gives
// the address of one of their 32 rows.
__device__ inline void load_matrices(uint32_t (&x)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}
__device__ inline void load_transposed(uint32_t (&x)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}
// c += a . b, of which each lane holds the elements (a fragment) that dot_mma.cuh says.
__device__ inline void mma(float& c0, float& c1, float& c2, float& c3, const uint32_t (&a)[4],
                           uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  mma(c[0], c[1], c[2], c[3], a, b0, b1);
}
__device__ inline void mma(float4& c, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  mma(c.x, c.y, c.z, c.w, a, b0, b1);
}

}  // namespace heed::kernels

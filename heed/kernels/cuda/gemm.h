#pragma once

namespace heed::kernels {

// f32 products in full f32 instead of tf32: for checks.
void set_exact_products(bool on);

}  // namespace heed::kernels

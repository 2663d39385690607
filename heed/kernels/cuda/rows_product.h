// Products of f32 whose rows have the same bits whatever rows are beside them (rows_product.cuh).
#pragma once

#include "heed/kernels/kernels.h"

namespace heed::kernels {

// As tf32, or exactly. An activation other than relu is left to be done.
void rows_product(Cuda, const Matmul<float>&);

}  // namespace heed::kernels

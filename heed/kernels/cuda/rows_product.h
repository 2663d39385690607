// Products of f32 whose rows have the same bits whatever rows are beside them (rows_product.cuh).
#pragma once

#include "heed/kernels/kernels.h"

namespace heed::kernels {

// False: it is of a form that this has no kernel for. An activation other than relu is left to be
// done.
bool rows_product(Cuda, const Matmul<float>&);

}  // namespace heed::kernels

// The whole library. Start with ops/ops.h (functions of tensors), nn/layers.h (layers) and
// ops/tape.h (gradients).
#pragma once

#include "heed/base/check.h"
#include "heed/base/parallel.h"
#include "heed/base/random.h"
#include "heed/base/unicode.h"
#include "heed/files/lines.h"
#include "heed/files/safetensors.h"
#include "heed/metrics/metrics.h"
#include "heed/nn/layers.h"
#include "heed/nn/module.h"
#include "heed/nn/recurrent.h"
#include "heed/ops/gradient_check.h"
#include "heed/ops/ops.h"
#include "heed/ops/tape.h"
#include "heed/tensor/memory.h"
#include "heed/tensor/tensor.h"
#include "heed/training/checkpoint.h"
#include "heed/training/optimizer.h"
#include "heed/version.h"
#include "heed/view/heatmap.h"
